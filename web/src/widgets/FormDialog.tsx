import { Alert, Button, Group, Modal, Stack } from '@mantine/core'
import type { UseMutationResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { text } from '../text'
import { useFocusBack } from './use-focus-back'

interface Props {
  title: string
  opened: boolean
  onClose: () => void
  /** What the form does when it is submitted; its error is shown in the dialog. */
  act: Pick<UseMutationResult<unknown, Error, void>, 'mutate' | 'isPending' | 'error'>
  /** The word on the button. */
  label: string
  /** It deletes or ends something. */
  danger?: boolean
  /** What is missing; the button waits for it. */
  disabled?: boolean
  size?: string
  children: ReactNode
}

/** A form in a dialog. */
export function FormDialog({ title, opened, onClose, act, label, danger = false, disabled = false, size = 'md', children }: Props) {
  useFocusBack()
  return (
    <Modal opened={opened} onClose={onClose} title={title} centered size={size} closeButtonProps={{ 'aria-label': text.close }}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          act.mutate()
        }}
      >
        <Stack gap="md">
          {children}
          {act.error && (
            <Alert color="red" role="alert">
              {act.error.message}
            </Alert>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {text.cancel}
            </Button>
            <Button type="submit" loading={act.isPending} disabled={disabled} {...(danger ? { color: 'red' } : {})}>
              {label}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  )
}

import { Alert, Button, Checkbox, Stack, Text } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import type { DeadLetter, DeadLetterChoice } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { text } from '../../text/queues'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'

interface Props {
  namespace: string
  choice: DeadLetterChoice
  label: string
  /** Called when it was done. */
  onDone?: (() => void) | undefined
}

const redrivePath = '/api/lapwing/v1/namespaces/{namespace}/deadletters/redrive'
const lettersPath = '/api/lapwing/v1/namespaces/{namespace}/deadletters'
const dry = <Path extends string>(path: Path) => `/api/lapwing/v1/dry-run${path}` as Path

/** Sends dead letters again. It says first how many, and what they say that is no longer so. */
export function RedriveButton({ namespace, choice, label, onDone }: Props) {
  const [opened, { open, close }] = useDisclosure()
  const rights = useRights(namespace)
  return (
    <>
      <Button size="xs" onClick={open} disabled={!rights.can('create', 'deadletters')} title={rights.why('create', 'deadletters')}>
        {label}
      </Button>
      {opened && <RedriveDialog namespace={namespace} choice={choice} onClose={close} onDone={onDone} />}
    </>
  )
}

function RedriveDialog({ namespace, choice, onClose, onDone }: Omit<Props, 'label'> & { onClose: () => void }) {
  const { api } = useApp()
  const client = useQueryClient()
  const [failingOnly, setFailingOnly] = useState(choice.failing_only ?? false)
  const [newest, setNewest] = useState(choice.newest ?? false)
  const body = { ...choice, ...(failingOnly ? { failing_only: true } : {}), ...(newest ? { newest: true } : {}) }
  const preview = useQuery({
    queryKey: ['redrive', namespace, body],
    retry: false,
    gcTime: 0,
    queryFn: () => unwrap(api.POST(dry(redrivePath), { params: { path: { namespace } }, body })),
  })
  const act = useMutation({
    mutationFn: () => unwrap(api.POST(redrivePath, { params: { path: { namespace } }, body })),
    onSuccess: ({ count }) => {
      done(text.redrive.done(count))
      void client.invalidateQueries({ queryKey: ['deadletters'] })
      onClose()
      onDone?.()
    },
  })
  const would = preview.data
  const single = choice.ids?.length === 1
  return (
    <FormDialog
      title={text.redrive.title}
      opened
      onClose={onClose}
      act={act}
      label={would ? text.redrive.do(would.count) : text.redrive.title}
      disabled={!would || would.count === 0}
      size="lg"
    >
      <div role="status" aria-live="polite">
        {preview.error && <Alert color="red">{preview.error.message}</Alert>}
        {!would && !preview.error && (
          <Text size="sm" c="dimmed">
            {text.asking}
          </Text>
        )}
        {would && (
          <Stack gap="sm">
            <Text size="sm">
              {would.count === 0 ? text.redrive.nothing : text.redrive.would(would.count)}{' '}
              {would.resolutions > 0 && text.redrive.resolutions(would.resolutions)}{' '}
              {(would.older ?? 0) > 0 && text.redrive.left(would.older ?? 0)}
            </Text>
            {would.passed > 0 && !failingOnly && (
              <Alert color="yellow">
                {text.redrive.passed(would.passed)} {text.redrive.order}
              </Alert>
            )}
            {would.no_handler > 0 && (
              <Alert color="yellow">{text.redrive.noHandler(would.no_handler, (would.missing_handlers ?? []).join(', '))}</Alert>
            )}
            {!single && <Sample letters={would.letters ?? []} />}
          </Stack>
        )}
      </div>
      <Checkbox label={text.redrive.failingOnly} checked={failingOnly} onChange={(event) => setFailingOnly(event.currentTarget.checked)} />
      {!single && <Checkbox label={text.redrive.newest} checked={newest} onChange={(event) => setNewest(event.currentTarget.checked)} />}
    </FormDialog>
  )
}

interface RemoveProps extends Props {
  choice: Omit<DeadLetterChoice, 'failing_only' | 'newest'>
}

/** Deletes dead letters. It says first how many. */
export function RemoveButton({ namespace, choice, label, onDone }: RemoveProps) {
  const [opened, { open, close }] = useDisclosure()
  const rights = useRights(namespace)
  return (
    <>
      <Button
        size="xs"
        variant="default"
        onClick={open}
        disabled={!rights.can('delete', 'deadletters')}
        title={rights.why('delete', 'deadletters')}
      >
        {label}
      </Button>
      {opened && <RemoveDialog namespace={namespace} choice={choice} onClose={close} onDone={onDone} />}
    </>
  )
}

function RemoveDialog({ namespace, choice, onClose, onDone }: Omit<RemoveProps, 'label'> & { onClose: () => void }) {
  const { api } = useApp()
  const client = useQueryClient()
  const query = {
    ...(choice.handler ? { handler: choice.handler } : {}),
    ...(choice.all ? { all: true } : {}),
    ...(choice.ids ? { id: choice.ids } : {}),
  } as never // the document calls repeated parameters one text
  const preview = useQuery({
    queryKey: ['remove', namespace, choice],
    retry: false,
    gcTime: 0,
    queryFn: () => unwrap(api.DELETE(dry(lettersPath), { params: { path: { namespace }, query } })),
  })
  const act = useMutation({
    mutationFn: () => unwrap(api.DELETE(lettersPath, { params: { path: { namespace }, query } })),
    onSuccess: ({ count }) => {
      done(text.remove.done(count))
      void client.invalidateQueries({ queryKey: ['deadletters'] })
      onClose()
      onDone?.()
    },
  })
  const would = preview.data
  return (
    <FormDialog
      title={text.remove.title}
      opened
      onClose={onClose}
      act={act}
      label={would ? text.remove.do(would.count) : text.remove.title}
      danger
      disabled={!would || would.count === 0}
      size="lg"
    >
      <div role="status" aria-live="polite">
        {preview.error && <Alert color="red">{preview.error.message}</Alert>}
        {!would && !preview.error && (
          <Text size="sm" c="dimmed">
            {text.asking}
          </Text>
        )}
        {would && <Text size="sm">{text.remove.would(would.count)}</Text>}
        {would && <Sample letters={would.letters ?? []} />}
      </div>
    </FormDialog>
  )
}

/** The first dead letters that something would change. */
function Sample({ letters }: { letters: readonly DeadLetter[] }) {
  if (letters.length === 0) return null
  return (
    <details>
      <summary>{text.redrive.first(letters.length)}</summary>
      <ul>
        {letters.map(({ id, check, entity, handler, reason }) => (
          <li key={id}>
            <Text size="sm">
              {check}, {entity}: {handler}, {reason}
            </Text>
          </li>
        ))}
      </ul>
    </details>
  )
}

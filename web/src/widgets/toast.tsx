import { Button, Group, Text } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { text } from '../text'

/** How long an act can be undone, in ms. */
const undoFor = 10_000

const closeButtonProps = { 'aria-label': text.close }

/** Says what was done, and offers to undo it for a while. */
export function done(message: string, undo?: () => Promise<unknown>): void {
  if (!undo) {
    notifications.show({ message, color: 'lapwing', closeButtonProps })
    return
  }
  const id = notifications.show({
    color: 'lapwing',
    closeButtonProps,
    autoClose: undoFor,
    message: (
      <Group justify="space-between" wrap="nowrap">
        <Text size="sm">{message}</Text>
        <Button
          size="compact-sm"
          variant="light"
          onClick={() => {
            notifications.hide(id)
            undo().then(
              () => done(text.act.undone),
              (err: unknown) => failed(text.act.undo, err),
            )
          }}
        >
          {text.act.undo}
        </Button>
      </Group>
    ),
  })
}

/** Says that an act failed, in the server's words. */
export function failed(what: string, err: unknown): void {
  notifications.show({
    title: what,
    message: err instanceof Error ? err.message : String(err),
    color: 'red',
    autoClose: false,
    closeButtonProps,
  })
}

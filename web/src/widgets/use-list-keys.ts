import type { HotkeyItem } from '@mantine/hooks'
import { useKeys } from './use-keys'

/** Keys that buttons, menus and texts that scroll have a use for. */
const common = new Set(['Enter', 'ArrowDown', 'ArrowUp', 'Home', 'End'])

/** Keys of a list. Common keys act only while the focus is in the list, or on nothing. */
export function useListKeys(keys: HotkeyItem[]): void {
  useKeys(
    keys.map(([key, act, options]): HotkeyItem => {
      const here: typeof act = (event) => {
        if (!common.has(key) || inList(event.target)) {
          if (options?.preventDefault !== false) event.preventDefault()
          act(event)
        }
      }
      return [key, here, { ...options, preventDefault: false }]
    }),
  )
}

function inList(focus: EventTarget | null): boolean {
  if (!(focus instanceof HTMLElement) || focus === document.body || focus.id === 'main') return true
  return focus.closest('[role=grid]') !== null && focus.closest('button, a, input, summary') === null
}

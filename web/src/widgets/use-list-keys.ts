import type { HotkeyItem } from '@mantine/hooks'
import { useKeys } from './use-keys'

/** Keys that buttons, menus and texts that scroll have a use for. */
const common = new Set(['Enter', 'ArrowDown', 'ArrowUp', 'Home', 'End'])

const above = '[role=dialog], [role=menu], .mantine-Spotlight-content'
// A dialog that Escape closes is gone when the key comes to the list.
let covered = false
if (typeof document !== 'undefined') addEventListener('keydown', () => (covered = document.querySelector(above) !== null), true)

/**
 * Keys of a list. They do nothing while a dialog, the palette or a menu is open: what is typed is meant for that. Common
 * keys act only while the focus is in the list, or on nothing.
 */
export function useListKeys(keys: HotkeyItem[]): void {
  useKeys(
    keys.map(([key, act, options]): HotkeyItem => {
      const unlessOpen: typeof act = (event) => {
        if (covered || document.querySelector(above) !== null) return
        if (!common.has(key) || inList(event.target)) {
          if (options?.preventDefault !== false) event.preventDefault()
          act(event)
        }
      }
      return [key, unlessOpen, { ...options, preventDefault: false }]
    }),
  )
}

function inList(focus: EventTarget | null): boolean {
  if (!(focus instanceof HTMLElement) || focus === document.body || focus.id === 'main') return true
  return focus.closest('[role=grid]') !== null && focus.closest('button, a, input, summary') === null
}

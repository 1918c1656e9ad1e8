import { useHotkeys, type HotkeyItem } from '@mantine/hooks'

/** Inputs into which nothing is typed. */
const untyped = new Set(['checkbox', 'radio', 'button', 'submit'])

/** Reports whether what is typed goes into a text, or chooses from a list. */
export function isTyping(focus: EventTarget | null): boolean {
  if (focus instanceof HTMLInputElement) return !untyped.has(focus.type)
  return focus instanceof HTMLElement && (focus.isContentEditable || ['TEXTAREA', 'SELECT'].includes(focus.tagName))
}

const above = '[role=dialog], [role=menu], .mantine-Spotlight-content'
// A dialog that Escape closes is gone when the key comes to the screen.
let covered = false
if (typeof document !== 'undefined') addEventListener('keydown', () => (covered = isCovered()), true)

/** Reports whether a dialog, the palette or a menu is open: what is typed is meant for that. */
export function isCovered(): boolean {
  return document.querySelector(above) !== null
}

/**
 * Keys of a screen. They do nothing while something is above it, or while a text is typed. A box that was ticked has the
 * focus and is no text.
 */
export function useKeys(keys: HotkeyItem[]): void {
  useHotkeys(
    keys.map(([key, act, options]): HotkeyItem => {
      const unlessMeantForOthers: typeof act = (event) => {
        if (covered || isCovered() || isTyping(event.target)) return
        if (options?.preventDefault !== false) event.preventDefault()
        act(event)
      }
      return [key, unlessMeantForOthers, { ...options, preventDefault: false }]
    }),
    [],
  )
}

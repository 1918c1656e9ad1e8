import { useHotkeys, type HotkeyItem } from '@mantine/hooks'

/** Inputs into which nothing is typed. */
const untyped = new Set(['checkbox', 'radio', 'button', 'submit'])

/** Reports whether what is typed goes into a text, or chooses from a list. */
export function isTyping(focus: EventTarget | null): boolean {
  if (focus instanceof HTMLInputElement) return !untyped.has(focus.type)
  return focus instanceof HTMLElement && (focus.isContentEditable || ['TEXTAREA', 'SELECT'].includes(focus.tagName))
}

/** Keys that act while nothing is typed into a text. A box that was ticked has the focus and is no text. */
export function useKeys(keys: HotkeyItem[]): void {
  useHotkeys(
    keys.map(([key, act, options]): HotkeyItem => {
      const unlessTyping: typeof act = (event) => {
        if (isTyping(event.target)) return
        if (options?.preventDefault !== false) event.preventDefault()
        act(event)
      }
      return [key, unlessTyping, { ...options, preventDefault: false }]
    }),
    [],
  )
}

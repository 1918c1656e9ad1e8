import { useEffect, useState } from 'react'

/**
 * Gives the focus back when a dialog goes: to what had it when the dialog came, or else to the list. The component library
 * does so only for dialogs that stay mounted.
 */
export function useFocusBack(): void {
  const [before] = useState(() => document.activeElement)
  useEffect(
    () => () => {
      setTimeout(() => {
        if (document.activeElement !== document.body) return
        const back = before !== document.body && before?.isConnected ? before : document.querySelector('main [role=grid]')
        if (back instanceof HTMLElement) back.focus({ preventScroll: true })
      }, afterwards)
    },
    [before],
  )
}

/** ms after the dialog, when its focus trap has let go. */
const afterwards = 50

import { useEffect, useRef, type RefObject } from 'react'

export interface KeyActions {
  search: RefObject<HTMLInputElement | null>
  step: (by: number) => void
  open: () => void
  escape: () => void
  reorder: () => void
  toggleOrder: () => void
  copy: () => void
  help: () => void
  focusList: () => void
}

/** The page's single-key shortcuts. They rest while the user types, in dialogs and with modifier keys. */
export function useKeys(actions: KeyActions): void {
  const latest = useRef(actions)
  useEffect(() => {
    latest.current = actions
  })

  useEffect(() => {
    function onKey(event: KeyboardEvent) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
      const target = event.target as HTMLElement
      if (target.closest('dialog')) return
      const act = latest.current
      const input = act.search.current

      if (target === input) {
        if (event.key === 'Escape') {
          if (input.value === '') act.focusList()
          else act.escape()
        } else if (event.key === 'Enter' || event.key === 'ArrowDown') {
          act.focusList()
        } else return
        event.preventDefault()
        return
      }
      if (target.closest('input, textarea, select')) return

      switch (event.key) {
        case 'j':
          act.step(1)
          break
        case 'k':
          act.step(-1)
          break
        case 'Escape':
          act.escape()
          break
        case '/':
          input?.focus()
          input?.select()
          break
        case '.':
          act.reorder()
          break
        case 'i':
          act.toggleOrder()
          break
        case 'c':
          act.copy()
          break
        case '?':
          act.help()
          break
        case 'ArrowDown':
        case 'ArrowUp':
          if (!inList(target)) return
          act.step(event.key === 'ArrowDown' ? 1 : -1)
          break
        case 'Home':
        case 'End':
          if (!inList(target)) return
          act.step(event.key === 'Home' ? -Infinity : Infinity)
          break
        case 'Enter':
          if (!inList(target)) return
          act.open()
          break
        default:
          return
      }
      event.preventDefault()
    }
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  }, [])
}

function inList(target: HTMLElement): boolean {
  return target === document.body || target.getAttribute('role') === 'grid'
}

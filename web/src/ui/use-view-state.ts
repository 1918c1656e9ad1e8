import { useCallback, useEffect, useRef, useState } from 'react'
import { formatView, parseView, type ViewState } from './view-state'

/**
 * The view in the address bar. Opening an event adds a history entry, so that Back closes it; all other
 * changes replace the entry.
 */
export function useViewState(): [ViewState, (change: Partial<ViewState>) => void] {
  const [view, setView] = useState(() => parseView(location.search))
  const closing = useRef<ViewState>(undefined)

  useEffect(() => {
    const onPop = () => {
      // The entry before may be older than a search made while the event was open.
      if (closing.current) history.replaceState(null, '', address(closing.current))
      closing.current = undefined
      setView(parseView(location.search))
    }
    addEventListener('popstate', onPop)
    return () => removeEventListener('popstate', onPop)
  }, [])

  const change = useCallback((part: Partial<ViewState>) => {
    const before = parseView(location.search)
    const after = { ...before, ...part }
    if (!before.event && after.event) {
      history.pushState({ opened: true }, '', address(after))
    } else if (before.event && !after.event && isOpened(history.state)) {
      closing.current = after
      history.back()
    } else {
      history.replaceState(history.state, '', address(after))
    }
    setView(after)
  }, [])

  return [view, change]
}

function address(view: ViewState): string {
  return location.pathname + formatView(view)
}

function isOpened(state: unknown): boolean {
  return typeof state === 'object' && state !== null && 'opened' in state
}

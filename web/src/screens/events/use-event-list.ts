import { useEffect, useMemo, useSyncExternalStore } from 'react'
import { useApp } from '../../app/context'
import { EventList } from '../../live/event-list'
import type { ListQuery } from '../../live/live-list'

/** A live list of events, drawn anew with each change. */
export function useEventList(query: ListQuery): EventList {
  const { live } = useApp()
  const { namespace, selector, sort, groupBy, first = 100 } = query
  const list = useMemo(
    () => new EventList({ query: { namespace, selector, sort, groupBy, first }, connection: live }),
    [live, namespace, selector, sort, groupBy, first],
  )
  useSyncExternalStore(list.subscribe, () => list.version)
  return list
}

/** Holds the rows of a list where they are while the pointer or a key has moved among them lately. */
export function useHold(list: { hold: (on: boolean) => void }, element: HTMLElement | null): void {
  useEffect(() => {
    if (!element) return
    let timer: ReturnType<typeof setTimeout> | undefined
    const hold = () => {
      list.hold(true)
      clearTimeout(timer)
      timer = setTimeout(() => list.hold(false), holdFor)
    }
    const release = () => {
      clearTimeout(timer)
      timer = setTimeout(() => list.hold(false), 1000)
    }
    element.addEventListener('pointermove', hold)
    element.addEventListener('keydown', hold)
    element.addEventListener('scroll', hold, { passive: true })
    element.addEventListener('pointerleave', release)
    return () => {
      clearTimeout(timer)
      list.hold(false)
      element.removeEventListener('pointermove', hold)
      element.removeEventListener('keydown', hold)
      element.removeEventListener('scroll', hold)
      element.removeEventListener('pointerleave', release)
    }
  }, [list, element])
}

/** ms after the last movement. */
const holdFor = 8000

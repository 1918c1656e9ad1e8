import { useEffect, useRef, useSyncExternalStore } from 'react'

/** What screen readers are told, one message at a time. */
let said = ''
const listeners = new Set<() => void>()

export function announce(message: string): void {
  said = message
  for (const listener of listeners) listener()
}

/** The place that screen readers read messages from. */
export function Announcer() {
  const message = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => said,
  )
  return (
    <div className="visually-hidden" role="status" aria-live="polite">
      {message}
    </div>
  )
}

/** At most one message in so many ms: a storm must not drown what the user reads. */
const every = 10_000

/** Announces a text when it changes, but not at first, and the newest one only. */
export function useAnnounce(message: string | undefined): void {
  const last = useRef<{ message: string | undefined; at: number }>(undefined)
  useEffect(() => {
    if (message === undefined) return
    if (last.current === undefined) {
      last.current = { message, at: 0 }
      return
    }
    if (last.current.message === message) return
    const timer = setTimeout(
      () => {
        last.current = { message, at: Date.now() }
        announce(message)
      },
      Math.max(0, last.current.at + every - Date.now()),
    )
    return () => clearTimeout(timer)
  }, [message])
}

import { useSyncExternalStore } from 'react'
import { usePreferences } from './preferences'

const listeners = new Set<() => void>()
let now = Date.now()
let timer: ReturnType<typeof setInterval> | undefined

/** The present time in ms, each second anew, the same for all ages on the screen. */
export function useNow(): number {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      timer ??= setInterval(() => {
        now = Date.now()
        for (const l of listeners) l()
      }, 1000)
      return () => {
        listeners.delete(listener)
        if (listeners.size > 0) return
        clearInterval(timer)
        timer = undefined
      }
    },
    () => now,
  )
}

/** A span in the two largest units: 45s, 3m 20s, 2h 5m, 3d 4h. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds))
  const units: [string, number][] = [
    ['d', 86_400],
    ['h', 3600],
    ['m', 60],
    ['s', 1],
  ]
  const first = units.findIndex(([, size]) => s >= size)
  if (first === -1) return '0s'
  const [unit, size] = units[first] ?? ['s', 1]
  const n = Math.floor(s / size)
  const next = units[first + 1]
  const rest = next ? Math.floor((s % size) / next[1]) : 0
  return rest > 0 && next && n < 10 ? `${n}${unit} ${rest}${next[0]}` : `${n}${unit}`
}

/** How long ago a moment was, in Unix seconds. */
export function Age({ at, title }: { at: number; title?: string }) {
  const present = useNow()
  const { time } = usePreferences()
  if (at === 0) return <span>–</span>
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={title ?? clock(at, time)}>
      {span(present / 1000 - at)}
    </time>
  )
}

const formats = new Map<string, Intl.DateTimeFormat>()

/** A moment with its day, in the user's zone or in UTC. */
export function clock(at: number, zone: 'local' | 'utc', seconds = true): string {
  const id = `${zone}${seconds}`
  let format = formats.get(id)
  if (!format) {
    format = new Intl.DateTimeFormat('en-GB', {
      year: 'numeric',
      month: 'short',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit',
      ...(seconds ? { second: '2-digit' } : {}),
      hourCycle: 'h23',
      timeZoneName: 'short',
      ...(zone === 'utc' ? { timeZone: 'UTC' } : {}),
    })
    formats.set(id, format)
  }
  return format.format(at * 1000)
}

/** A moment within the last day by its time of day, and an older one with its day before it. */
export function timeOfDay(at: number, zone: 'local' | 'utc', now = Date.now() / 1000): string {
  const old = now - at > 86_400
  const id = `short${zone}${old}`
  let format = formats.get(id)
  if (!format) {
    format = new Intl.DateTimeFormat('en-GB', {
      ...(old ? { month: 'short', day: '2-digit' } : {}),
      hour: '2-digit',
      minute: '2-digit',
      hourCycle: 'h23',
      ...(zone === 'utc' ? { timeZone: 'UTC' } : {}),
    })
    formats.set(id, format)
  }
  return format.format(at * 1000)
}

export function Moment({ at, seconds }: { at: number; seconds?: boolean }) {
  const { time } = usePreferences()
  if (at === 0) return <span>–</span>
  return <time dateTime={new Date(at * 1000).toISOString()}>{clock(at, time, seconds)}</time>
}

/** A moment as a field of the browser for dates and times has it. */
export function fieldOf(at: number, zone: 'local' | 'utc'): string {
  const offset = zone === 'utc' ? 0 : new Date(at * 1000).getTimezoneOffset() * 60
  return new Date((at - offset) * 1000).toISOString().slice(0, 16)
}

/** The Unix seconds of such a field; undefined if it is empty. */
export function unixOf(field: string, zone: 'local' | 'utc'): number | undefined {
  const at = Date.parse(zone === 'utc' ? `${field}Z` : field)
  return Number.isNaN(at) ? undefined : at / 1000
}

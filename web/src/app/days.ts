/** A part of a strip of days, from 0 at its begin to 1 at its end. */
export interface Bar {
  left: number
  width: number
  /** It began before the strip, or goes on after it. */
  before: boolean
  after: boolean
}

/** The place of a span in a strip; undefined if it is outside. An end of 0 is none. */
export function place(span: { begins: number; ends: number }, from: number, to: number): Bar | undefined {
  const ends = span.ends === 0 ? Infinity : span.ends
  if (span.begins >= to || ends <= from) return undefined
  const left = (Math.max(span.begins, from) - from) / (to - from)
  const right = (Math.min(ends, to) - from) / (to - from)
  return { left, width: right - left, before: span.begins < from, after: ends > to }
}

const daySeconds = 86_400

/** The Monday of the week of a moment, at 00:00 of the zone. */
export function monday(at: Date, utc: boolean): Date {
  const day = new Date(at)
  if (utc) {
    day.setUTCHours(0, 0, 0, 0)
    day.setUTCDate(day.getUTCDate() - ((day.getUTCDay() + 6) % 7))
  } else {
    day.setHours(0, 0, 0, 0)
    day.setDate(day.getDate() - ((day.getDay() + 6) % 7))
  }
  return day
}

/** The begins of days from the first on, and the end of the last one, in Unix seconds. Days have 23 to 25 hours. */
export function days(first: Date, n: number, utc: boolean): number[] {
  return Array.from({ length: n + 1 }, (_, i) => {
    if (utc) return first.getTime() / 1000 + i * daySeconds
    const day = new Date(first)
    day.setDate(day.getDate() + i)
    return day.getTime() / 1000
  })
}

const two = (n: number) => String(n).padStart(2, '0')

/** A day as in the address. */
export function dayText(day: Date, utc: boolean): string {
  return utc ? day.toISOString().slice(0, 10) : `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`
}

/** A day of the address; undefined if it is none. */
export function dayOf(text: string | undefined, utc: boolean): Date | undefined {
  if (text === undefined || !/^\d{4}-\d\d-\d\d$/.test(text)) return undefined
  const day = new Date(utc ? `${text}T00:00:00Z` : `${text}T00:00:00`)
  return Number.isNaN(day.getTime()) ? undefined : day
}

/** A day so many days later. */
export function later(day: Date, by: number, utc: boolean): Date {
  const next = new Date(day)
  if (utc) next.setUTCDate(next.getUTCDate() + by)
  else next.setDate(next.getDate() + by)
  return next
}

/** A day and its month: 28 Nov. */
export function shortDay(at: number, utc: boolean): string {
  return new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', ...(utc ? { timeZone: 'UTC' } : {}) }).format(at * 1000)
}

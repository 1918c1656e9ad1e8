/** The time of a view: so many seconds until now, or from one moment to another, in Unix seconds. */
export type TimeRange = { last: number } | { from: number; until: number }

const units: Record<string, number> = { m: 60, h: 3600, d: 86_400 }

/** Reads a time of the address: "1h", "7d", or "1795896000-1795899600". */
export function parseRange(value: string | undefined): TimeRange | undefined {
  const [, n, unit, from, until] = /^(?:(\d{1,4})([mhd])|(\d{1,11})-(\d{1,11}))$/.exec(value ?? '') ?? []
  if (n !== undefined && unit !== undefined && Number(n) > 0) return { last: Number(n) * (units[unit] ?? 0) }
  if (from !== undefined && until !== undefined && Number(from) < Number(until)) return { from: Number(from), until: Number(until) }
  return undefined
}

/** Writes two moments for the address. They are a second apart at least. */
export function writeBounds(from: number, until: number): string {
  const first = Math.floor(from)
  return `${first}-${Math.max(first + 1, Math.ceil(until))}`
}

export function boundsOf(range: TimeRange, now: number): { from: number; until: number } {
  return 'last' in range ? { from: now - range.last, until: now } : range
}

/** Another time: half of its length earlier or later, or the half in its middle. It ends now at the latest. */
export function moved(range: TimeRange, how: 'earlier' | 'later' | 'closer', now: number): string {
  const { from, until } = boundsOf(range, now)
  const length = until - from
  if (how === 'closer') return writeBounds(from + length / 4, until - length / 4)
  const by = how === 'earlier' ? -length / 2 : Math.min(length / 2, now - until)
  return writeBounds(from + by, until + by)
}

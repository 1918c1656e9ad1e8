import type { Check, SensuEvent } from '../api/types'

export interface EventRef {
  namespace: string
  entity: string
  check: string
}

/** Joins with NUL, which no name can hold and which sorts first: comparing keys is comparing the parts in turn. */
export function keyOf(ref: EventRef): string {
  return ref.namespace + '\0' + ref.entity + '\0' + ref.check
}

export function refOf(key: string): EventRef {
  const [namespace = '', entity = '', check = ''] = key.split('\0')
  return { namespace, entity, check }
}

/** What the list needs of an event: small, because a page may hold several hundred thousand. */
export interface RowData {
  key: string
  status: number
  /** First line of the output, cut. */
  output: string
  occurrences: number
  silenced: boolean
  /** Unix seconds at which the event was made. */
  seen: number
  /** The last statuses, oldest first, one digit each, 3 for every unknown. */
  history: string
}

export const maxOutput = 160
export const maxHistory = 20

/** Reduces an event to a row; undefined for one without a check (metrics are not listed). */
export function toRow(event: SensuEvent): RowData | undefined {
  const { check, entity } = event
  if (!check || !entity) return undefined
  const key = keyOf({
    namespace: entity.metadata?.namespace ?? check.metadata?.namespace ?? '',
    entity: entity.metadata?.name ?? '',
    check: check.metadata?.name ?? '',
  })
  return {
    key,
    status: check.status ?? 0,
    output: firstLine(check.output ?? ''),
    occurrences: check.occurrences ?? 0,
    silenced: isSilenced(check),
    seen: event.timestamp || check.executed || 0,
    history: (check.history ?? [])
      .slice(-maxHistory)
      .map((h) => Math.min(h.status ?? 0, 3))
      .join(''),
  }
}

export function isSilenced(check: Check): boolean {
  return check.is_silenced === true || (check.silenced?.length ?? 0) > 0
}

/** The first line that is not empty, cut to maxOutput characters without splitting a surrogate pair. */
export function firstLine(output: string): string {
  // Looking at a bounded head keeps the cost independent of the output's size.
  const head = output.slice(0, maxOutput * 4).trimStart()
  const end = head.search(/[\r\n]/)
  const line = (end === -1 ? head : head.slice(0, end)).trimEnd()
  if (line.length <= maxOutput) return line
  const cut = /[\uD800-\uDBFF]/.test(line.charAt(maxOutput - 2)) ? maxOutput - 2 : maxOutput - 1
  return line.slice(0, cut) + '…'
}

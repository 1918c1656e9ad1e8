import type { CheckConfig, CheckLateness, EventCounts } from '../../api/types'
import { text } from '../../text'
import { checksText as t } from '../../text/checks'
import type { Mark } from '../../widgets/icons'

/** A check with what is known of its runs. */
export interface CheckRow {
  key: string
  namespace: string
  name: string
  check: CheckConfig
  late: CheckLateness | undefined
  counts: EventCounts | undefined
}

/** The failing events of a check: also those that are silenced. */
export const failingOf = (counts: EventCounts | undefined): number => (counts ? counts.total - counts.ok : 0)

/** The worst result that is not silenced; undefined if only silenced ones fail, or there is none. */
export function markOfCheck(counts: EventCounts | undefined): Mark | undefined {
  if (!counts || counts.total === 0) return undefined
  if (counts.critical > 0) return 'critical'
  if (counts.warning > 0) return 'warning'
  if (counts.unknown > 0) return 'unknown'
  return failingOf(counts) === 0 ? 'ok' : undefined
}

/** Whether a check is in a list: all words are in its texts, and it is in the state. */
export function matches({ check, late, counts, name, namespace }: CheckRow, q: string, state: string | undefined): boolean {
  if (state === 'failing' && failingOf(counts) === 0) return false
  if (state === 'late' && !isLate(late)) return false
  if (state === 'off' && check.publish) return false
  const texts = [name, namespace, check.command ?? '', ...(check.subscriptions ?? []), ...handledBy(check)].join('\n').toLowerCase()
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => texts.includes(word))
}

export const isLate = (late: CheckLateness | undefined): boolean =>
  late !== undefined && (late.overdue > 0 || (late.without_agent ?? []).length > 0)

/** Handlers and pipelines by their names. */
export function handledBy(check: CheckConfig): string[] {
  return [...(check.handlers ?? []), ...(check.pipelines ?? []).map(({ name }) => name ?? '').filter((name) => name !== '')]
}

export function schedule({ interval = 0, cron = '' }: Pick<CheckConfig, 'interval' | 'cron'>): string {
  return cron !== '' ? cron : interval > 0 ? t.every(interval) : t.noSchedule
}

export function lateness(late: CheckLateness | undefined): string {
  if (late === undefined) return '–'
  if (late.overdue > 0) return t.overdue(late.overdue)
  return (late.without_agent ?? []).length > 0 ? t.noAgent : late.last_run === 0 ? text.never : t.onTime
}

import type { StateReportRow } from '../../api/types'
import type { Mark } from '../../widgets/icons'
import type { ReportKind } from './search'

/** A part of a row's bar. */
export interface Share {
  mark: Mark | 'silenced' | 'none'
  /** Percent of the bar. */
  width: number
}

/** The times in states as parts of the whole time. */
export function statesOf(row: StateReportRow): Share[] {
  const parts: [Share['mark'], number][] = [
    ['ok', row.ok_ms],
    ['warning', row.warning_ms],
    ['critical', row.critical_ms],
    ['unknown', row.unknown_ms + row.missing_ms],
    ['none', row.no_data_ms],
  ]
  const all = parts.reduce((sum, [, ms]) => sum + ms, 0)
  return all === 0 ? [] : parts.filter(([, ms]) => ms > 0).map(([mark, ms]) => ({ mark, width: (100 * ms) / all }))
}

/** What a row's bar has the length of. */
export function lengthOf(kind: ReportKind, row: StateReportRow): number {
  switch (kind) {
    case 'availability':
      return 1
    case 'response':
      return row.incidents
    case 'noisiest':
      return row.changes
    case 'flapping':
      return row.flapping_ms
    case 'incidents':
      return row.incident?.duration_ms ?? 0
  }
}

export function nameOf(row: StateReportRow): string {
  if (row.label !== undefined) return row.label
  return [row.entity, row.check].filter((part) => part !== undefined && part !== '').join('/')
}

import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

export const reportKinds = ['availability', 'response', 'noisiest', 'flapping', 'incidents'] as const
export type ReportKind = (typeof reportKinds)[number]

/** The state of the reports, all of it in the address. */
export interface ReportsSearch extends SharedSearch {
  kind?: string | undefined
  /** 7d, or from-until in Unix seconds. */
  time?: string | undefined
  /** this or last, instead of a time. */
  month?: string | undefined
  /** pair, entity, check, or label: and its name. */
  by?: string | undefined
  q?: string | undefined
  /** yes: silenced time is left out. */
  skip?: string | undefined
  sort?: string | undefined
}

export function reportsSearch(search: Record<string, unknown>): ReportsSearch {
  const out: ReportsSearch = { ...sharedSearch(search) }
  for (const key of ['kind', 'time', 'month', 'by', 'q', 'skip', 'sort'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

export const kindOf = ({ kind }: ReportsSearch): ReportKind => reportKinds.find((one) => one === kind) ?? 'availability'

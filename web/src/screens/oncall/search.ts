import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the screen of who is on call, all of it in the address. */
export interface OnCallSearch extends SharedSearch {
  /** contacts, calendars or escalations; rotas without it. */
  part?: string | undefined
  /** The first day of the strips, as 2026-11-23. */
  week?: string | undefined
  /** Key of the calendar or contact that is open. */
  open?: string | undefined
  sort?: string | undefined
}

export function oncallSearch(search: Record<string, unknown>): OnCallSearch {
  const out: OnCallSearch = { ...sharedSearch(search) }
  for (const key of ['part', 'week', 'open', 'sort'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

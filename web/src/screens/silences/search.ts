import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the list of silences, all of it in the address. */
export interface SilencesSearch extends SharedSearch {
  q?: string | undefined
  /** A kind of silences, or "ended". */
  show?: string | undefined
  sort?: string | undefined
  /** "calendar" instead of the list. */
  view?: string | undefined
  /** The first day of the calendar, as 2026-11-23. */
  week?: string | undefined
  /** Key of the silence whose detail is open. */
  silence?: string | undefined
  /** The form of a new silence is open. */
  make?: string | undefined
}

export function silencesSearch(search: Record<string, unknown>): SilencesSearch {
  const out: SilencesSearch = { ...sharedSearch(search) }
  for (const key of ['q', 'show', 'sort', 'view', 'week', 'silence', 'make'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

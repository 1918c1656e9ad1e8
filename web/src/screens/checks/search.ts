import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the list of checks, all of it in the address. */
export interface ChecksSearch extends SharedSearch {
  q?: string | undefined
  /** failing, late or off (not published); all without it. */
  state?: string | undefined
  sort?: string | undefined
  /** namespace/name of the check whose detail is open. */
  check?: string | undefined
  /** The dialog that is open: new, edit, run, publish or delete. */
  act?: string | undefined
}

export function checksSearch(search: Record<string, unknown>): ChecksSearch {
  const out: ChecksSearch = { ...sharedSearch(search) }
  for (const key of ['q', 'state', 'sort', 'check', 'act'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The dialog that is open, in the address. */
export interface ClusterSearch extends SharedSearch {
  act?: string | undefined
  member?: string | undefined
}

export function clusterSearch(search: Record<string, unknown>): ClusterSearch {
  const out: ClusterSearch = { ...sharedSearch(search) }
  for (const key of ['act', 'member'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

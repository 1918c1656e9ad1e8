import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the list of services, all of it in the address. */
export interface ServicesSearch extends SharedSearch {
  q?: string | undefined
  sort?: string | undefined
  /** namespace/name of the service whose detail is open. */
  service?: string | undefined
}

export function servicesSearch(search: Record<string, unknown>): ServicesSearch {
  const out: ServicesSearch = { ...sharedSearch(search) }
  for (const key of ['q', 'sort', 'service'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

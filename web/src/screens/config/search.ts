import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the definitions, all of it in the address. */
export interface ConfigSearch extends SharedSearch {
  /** The kind that is listed; import or findings for those views. */
  kind?: string | undefined
  q?: string | undefined
  sort?: string | undefined
  /** namespace/name of the definition that is open. */
  open?: string | undefined
  /** The dialog that is open: new, edit or delete. */
  act?: string | undefined
}

export function configSearch(search: Record<string, unknown>): ConfigSearch {
  const out: ConfigSearch = { ...sharedSearch(search) }
  for (const key of ['kind', 'q', 'sort', 'open', 'act'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

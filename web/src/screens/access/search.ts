import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the screen, all of it in the address. */
export interface AccessSearch extends SharedSearch {
  /** users, roles, bindings, keys or test; users without it. */
  view?: string | undefined
  q?: string | undefined
  sort?: string | undefined
  /** Key of what is open. */
  open?: string | undefined
  act?: string | undefined
  /** The question of the tester. */
  user?: string | undefined
  verb?: string | undefined
  resource?: string | undefined
  name?: string | undefined
}

export function accessSearch(search: Record<string, unknown>): AccessSearch {
  const out: AccessSearch = { ...sharedSearch(search) }
  for (const key of ['view', 'q', 'sort', 'open', 'act', 'user', 'verb', 'resource', 'name'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

export type QueuesTab = 'handlers' | 'letters' | 'groups'

export interface QueuesSearch extends SharedSearch {
  /** Default: handlers. */
  tab?: QueuesTab | undefined
  sort?: string | undefined
  /** Whose dead letters are listed. */
  of?: string | undefined
  /** namespace/name of the open handler. */
  handler?: string | undefined
  /** namespace/ID of the open dead letter. */
  letter?: string | undefined
  /** namespace/check/subscription of the open group. */
  group?: string | undefined
}

export function queuesSearch(search: Record<string, unknown>): QueuesSearch {
  const out: QueuesSearch = { ...sharedSearch(search) }
  if (search.tab === 'letters' || search.tab === 'groups') out.tab = search.tab
  for (const key of ['sort', 'of', 'handler', 'letter', 'group'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

/** The namespace of a key, and the rest of it, which may have slashes. */
export function splitKey(key: string): { namespace: string; rest: string } {
  const at = key.indexOf('/')
  return { namespace: key.slice(0, Math.max(0, at)), rest: key.slice(at + 1) }
}

import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the audit log, all of it in the address. */
export interface AuditSearch extends SharedSearch {
  user?: string | undefined
  kind?: string | undefined
  name?: string | undefined
  action?: string | undefined
  /** An age, as 24h, or a moment. */
  since?: string | undefined
  until?: string | undefined
  /** Number of the entry whose detail is open. */
  entry?: string | undefined
}

const keys = ['user', 'kind', 'name', 'action', 'since', 'until', 'entry'] as const

export function auditSearch(search: Record<string, unknown>): AuditSearch {
  const out: AuditSearch = { ...sharedSearch(search) }
  for (const key of keys) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

/** The parameters of the request. */
export function asked({ user, kind, name, action, since, until }: AuditSearch): Record<string, string> {
  const all = { user, resource: kind, name, action, since, until }
  return Object.fromEntries(Object.entries(all).filter((pair): pair is [string, string] => pair[1] !== undefined))
}

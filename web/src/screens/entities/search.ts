import { sharedSearch, textIn, type SharedSearch } from '../../app/search'
import { entityLanguage } from '../../search/fields'
import { isSelector, parseQuery, quoted, withoutChip, withTerm } from '../../search/query'

/** The state of the list of entities, all of it in the address. */
export interface EntitiesSearch extends SharedSearch {
  q?: string | undefined
  sort?: string | undefined
  /** What the entities are grouped by; in the list they are counted by it. */
  group?: string | undefined
  /** "map" instead of the list. */
  view?: string | undefined
  /** Size of the map's cells: small, medium or large; otherwise as many as fit. */
  zoom?: string | undefined
  /** States of agents, classes of the worst event, with commas between them, and the member that agents are connected to. */
  agent?: string | undefined
  worst?: string | undefined
  backend?: string | undefined
  /** A label that is counted at the side besides the first ones. */
  facet?: string | undefined
  /** namespace/name of the entity whose detail is open. */
  entity?: string | undefined
}

export function entitiesSearch(search: Record<string, unknown>): EntitiesSearch {
  const out: EntitiesSearch = { ...sharedSearch(search) }
  for (const key of ['q', 'sort', 'group', 'view', 'zoom', 'agent', 'worst', 'backend', 'facet', 'entity'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

/** A part of the search in the address. */
export type Change = { [K in keyof EntitiesSearch]?: string | undefined }

/** The condition for the entities of a group; undefined if a search cannot say it. */
export function groupTerm(by: string, value: string): string | undefined {
  if (by === 'subscription') return value === '' ? undefined : `${quoted(value)} in subscriptions`
  if (by === 'backend') return undefined
  if (!by.startsWith('label:')) return `${by} == ${quoted(value)}`
  const label = `label.${by.slice('label:'.length)}`
  return value === '' ? `!(${label} =~ "")` : `${label} == ${quoted(value)}` // no comparison holds for a label that is not there
}

/** Whether the search has only entities of a group. */
export function isChosen(search: EntitiesSearch, by: string, value: string): boolean {
  if (by === 'agent' || by === 'worst') return (search[by] ?? '').split(',').includes(value)
  if (by === 'backend') return value !== '' && search.backend === value
  return chipOf(search, by, value) >= 0
}

function chipOf({ q = '' }: EntitiesSearch, by: string, value: string): number {
  const term = groupTerm(by, value)
  return term === undefined || !isSelector(q) ? -1 : parseQuery(q, entityLanguage).chips.indexOf(term)
}

/** What changes in the search when a value at the side is clicked; undefined if it cannot be searched for. */
export function toggled(search: EntitiesSearch, by: string, value: string): Change | undefined {
  if (by === 'agent' || by === 'worst') {
    const now = (search[by] ?? '').split(',').filter((one) => one !== '')
    const next = now.includes(value) ? now.filter((one) => one !== value) : [...now, value]
    return { [by]: next.join(',') || undefined }
  }
  if (by === 'backend') return value === '' ? undefined : { backend: search.backend === value ? undefined : value }
  const chip = chipOf(search, by, value)
  if (chip >= 0) return { q: withoutChip(search.q ?? '', chip) || undefined }
  const term = groupTerm(by, value)
  return term === undefined ? undefined : { q: withTerm(search.q ?? '', term, entityLanguage) }
}

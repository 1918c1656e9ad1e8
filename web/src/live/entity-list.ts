import type { EntityCounts, EntityFacet, EntityGroup, EntityRow } from '../api/types'
import { LiveList, type ListOptions, type ListQuery, type RowKind, type Window } from './live-list'

export interface EntityQuery extends ListQuery {
  /** States of agents, classes of the worst event, and the member that agents are connected to, as the API takes them; "" for all. */
  agent: string
  worst: string
  backend: string
  /** Keys whose values are counted, with commas between them; "" for none. */
  facets: string
}

/** Key of a row. */
export const entityKeyOf = (row: { namespace: string; name: string }): string => `${row.namespace}/${row.name}`

const entities: RowKind<EntityRow, EntityCounts> = {
  resource: 'entities',
  keyOf: entityKeyOf,
  stateOf: (row) => `${row.worst} ${row.agent}`,
  none: { total: 0, connected: 0, late: 0, gone: 0, proxy: 0 },
}

/** A live list of entities, with the most frequent values of some keys. */
export class EntityList extends LiveList<EntityRow, EntityCounts, EntityGroup, EntityQuery> {
  facets: readonly EntityFacet[] = []

  constructor(options: ListOptions<EntityQuery>) {
    super(entities, options)
  }

  protected override ask(params: URLSearchParams): void {
    for (const key of ['agent', 'worst', 'backend', 'facets'] as const) if (this.query[key] !== '') params.set(key, this.query[key])
  }

  protected override merge(window: Window<EntityRow, EntityCounts, EntityGroup> & { facets?: readonly EntityFacet[] }): void {
    if (window.facets) this.facets = window.facets
    super.merge(window)
  }
}

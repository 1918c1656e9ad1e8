import type { EventCounts, EventGroup, EventRow } from '../api/types'
import { LiveList, type ListOptions, type RowKind } from './live-list'

export const keyOf = (row: { namespace: string; entity: string; check: string }): string => `${row.namespace}/${row.entity}/${row.check}`

const events: RowKind<EventRow, EventCounts> = {
  resource: 'events',
  keyOf,
  stateOf: (row) => row.status,
  none: { critical: 0, warning: 0, unknown: 0, silenced: 0, ok: 0, total: 0 },
}

/** A live list of events. */
export class EventList extends LiveList<EventRow, EventCounts, EventGroup> {
  constructor(options: ListOptions) {
    super(events, options)
  }
}

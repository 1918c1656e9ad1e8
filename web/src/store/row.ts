import { refOf, type RowData } from '../live/event'

export type Group = 'critical' | 'warning' | 'unknown' | 'silenced' | 'ok'

/** Every event is in one group: an incident that is silenced counts as silenced, not by its status. */
export const groups: readonly Group[] = ['critical', 'warning', 'unknown', 'silenced', 'ok']

/** One event in the list. It stays the same object for as long as the event exists and changes in place. */
export class Row {
  readonly key: string
  readonly namespace: string
  readonly entity: string
  readonly check: string
  status = 0
  output = ''
  occurrences = 0
  silenced = false
  seen = 0
  history = ''
  /** Counts changes, so that a view can detect that it has drawn an older state. */
  revision = 0
  /** performance.now() of the last change of status that happened live. */
  changed = Number.NEGATIVE_INFINITY
  /** Deleted at the backend; such a row is kept only until the view reorders. */
  gone = false
  epoch = 0

  // State of the view.
  shown = false
  rank = 0
  misplaced = false

  constructor(key: string, intern: (s: string) => string) {
    this.key = key
    const ref = refOf(key)
    this.namespace = intern(ref.namespace)
    this.entity = intern(ref.entity)
    this.check = intern(ref.check)
  }

  set(data: RowData): void {
    this.status = data.status
    this.output = data.output
    this.occurrences = data.occurrences
    this.silenced = data.silenced
    this.seen = data.seen
    this.history = data.history
    this.revision++
  }

  get group(): Group {
    if (this.status === 0) return 'ok'
    if (this.silenced) return 'silenced'
    return this.status === 1 ? 'warning' : this.status === 2 ? 'critical' : 'unknown'
  }
}

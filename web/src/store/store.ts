import type { RowData } from '../live/event'
import type { Batch } from '../live/protocol'
import { groups, Row, type Group } from './row'
import { compileQuery, type Matcher } from './search'

export type Counts = Record<Group, number>

export interface ViewOptions {
  query: string
  /** Show only these groups; empty for all. */
  groups: readonly Group[]
  incidentsFirst: boolean
}

/** A row becomes an incident or is resolved, for announcements. */
export interface Transition {
  row: Row
  to: 'incident' | 'resolved'
}

/**
 * All events of a namespace and an ordered, filtered view of them.
 *
 * A change shows in its row at once, but rows enter, leave or move only in reorder(), so that its caller can wait
 * until the user does not read the list. Until then `misplaced` counts the rows out of place. Reordering costs one
 * pass over the view and a sort of the rows out of place.
 */
export class EventStore {
  readonly counts: Counts = { critical: 0, warning: 0, unknown: 0, silenced: 0, ok: 0 }
  /** Rows in display order. Replaced, never modified, by reorder and setView. */
  view: readonly Row[] = []
  misplaced = 0
  viewOptions: ViewOptions = { query: '', groups: [], incidentsFirst: true }
  /** The backend's current state has been received at least once. */
  synced = false
  onTransition: ((t: Transition) => void) | undefined

  private readonly rows = new Map<string, Row>()
  /** The rows with misplaced set. */
  private readonly out = new Set<Row>()
  private readonly names = new Map<string, string>()
  private epoch = 0
  private loading = true
  private matcher: Matcher | undefined

  get size(): number {
    return this.rows.size
  }

  /** Unsilenced events that are not OK. */
  get incidents(): number {
    return this.counts.critical + this.counts.unknown + this.counts.warning
  }

  get(key: string): Row | undefined {
    return this.rows.get(key)
  }

  apply(batch: Batch, now = performance.now()): void {
    if (batch.epoch !== this.epoch) {
      this.epoch = batch.epoch
      this.loading = true
    }
    for (const data of batch.rows) this.upsert(data, now)
    for (const key of batch.deleted) {
      const row = this.rows.get(key)
      if (row) this.drop(row)
    }
    if (batch.synced) {
      // Events that this connection has not sent were deleted while there was none.
      for (const row of this.rows.values()) if (row.epoch !== this.epoch) this.drop(row)
      this.loading = false
      this.synced = true
    }
  }

  private upsert(data: RowData, now: number): void {
    let row = this.rows.get(data.key)
    if (!row) {
      row = new Row(data.key, this.intern)
      this.rows.set(data.key, row)
      row.set(data)
      if (!this.loading) row.changed = now
      this.counts[row.group]++
      if (row.group !== 'ok' && row.group !== 'silenced') this.transition(row, 'incident')
    } else {
      const before = row.group
      const status = row.status
      row.set(data)
      const after = row.group
      if (before !== after) {
        this.counts[before]--
        this.counts[after]++
      }
      if (status !== row.status) {
        if (!this.loading) row.changed = now
        if (status === 0 && after !== 'silenced') this.transition(row, 'incident')
        else if (row.status === 0 && before !== 'silenced') this.transition(row, 'resolved')
      }
    }
    row.epoch = this.epoch
    this.place(row)
  }

  private drop(row: Row): void {
    this.rows.delete(row.key)
    this.counts[row.group]--
    row.gone = true
    row.revision++
    this.place(row)
  }

  private transition(row: Row, to: Transition['to']): void {
    if (!this.loading) this.onTransition?.({ row, to })
  }

  private readonly intern = (s: string): string => {
    const known = this.names.get(s)
    if (known !== undefined) return known
    this.names.set(s, s)
    return s
  }

  private wants(row: Row): boolean {
    if (row.gone) return false
    const { groups: only } = this.viewOptions
    if (only.length > 0 && !only.includes(row.group)) return false
    return this.matcher === undefined || this.matcher(row)
  }

  private rankOf(row: Row): number {
    return this.viewOptions.incidentsFirst ? groups.indexOf(row.group) : 0
  }

  /** Notes whether the row is in its place. */
  private place(row: Row): void {
    const wanted = this.wants(row)
    const misplaced = wanted !== row.shown || (wanted && row.rank !== this.rankOf(row))
    if (misplaced === row.misplaced) return
    row.misplaced = misplaced
    this.misplaced += misplaced ? 1 : -1
    if (misplaced) this.out.add(row)
    else this.out.delete(row)
  }

  /** Changes what is shown and how; every row is in its place afterwards. */
  setView(options: ViewOptions): void {
    if (options.query !== this.viewOptions.query) this.matcher = compileQuery(options.query)
    this.viewOptions = options
    for (const row of this.view) row.shown = false
    const ranks: Row[][] = groups.map(() => [])
    for (const row of this.rows.values()) {
      row.misplaced = false
      row.shown = this.wants(row)
      if (!row.shown) continue
      row.rank = this.rankOf(row)
      ranks[row.rank]?.push(row)
    }
    this.view = ranks.flatMap((rows) => rows.sort(byPlace))
    this.out.clear()
    this.misplaced = 0
  }

  /** Puts every row in its place. */
  reorder(): void {
    if (this.misplaced === 0) return
    const moved: Row[] = []
    const kept = this.view.filter((row) => !row.misplaced)
    for (const row of this.out) {
      row.misplaced = false
      row.shown = this.wants(row)
      if (!row.shown) continue
      row.rank = this.rankOf(row)
      moved.push(row)
    }
    this.view = merge(kept, moved.sort(byPlace))
    this.out.clear()
    this.misplaced = 0
  }

  /** The position of a row in the view; for one that is not there, the position it would have. */
  indexOf(row: Row): number {
    let low = 0
    let high = this.view.length
    while (low < high) {
      const middle = (low + high) >>> 1
      const other = this.view[middle]
      if (other && byPlace(other, row) < 0) low = middle + 1
      else high = middle
    }
    return low
  }
}

function byPlace(a: Row, b: Row): number {
  if (a.rank !== b.rank) return a.rank - b.rank
  return a.key < b.key ? -1 : a.key > b.key ? 1 : 0
}

function merge(a: readonly Row[], b: readonly Row[]): Row[] {
  if (b.length === 0) return a as Row[]
  const merged: Row[] = []
  let j = 0
  for (const row of a) {
    let other = b[j]
    while (other && byPlace(other, row) < 0) {
      merged.push(other)
      other = b[++j]
    }
    merged.push(row)
  }
  for (; j < b.length; j++) merged.push(b[j] as Row)
  return merged
}

import type { EventCounts, EventGroup, EventRow, EventWindow } from '../api/types'
import type { LiveConnection, LiveState } from './connection'
import type { ServerEvent } from './sse'

/** What a list of events shows. All of it is done by the server. */
export interface ListQuery {
  /** "-" for all. */
  namespace: string
  /** A field selector; "" for all events. */
  selector: string
  sort: string
  /** Counts by this instead of rows; "" for rows. */
  groupBy: string
}

/** The rows, or groups, that the page needs. */
export interface Range {
  offset: number
  limit: number
}

export interface ListOptions {
  query: ListQuery
  connection: Pick<LiveConnection, 'follow'>
  /** Runs changes together before the next frame. Default requestAnimationFrame. */
  schedule?: (f: () => void) => void
}

export const keyOf = (row: { namespace: string; entity: string; check: string }): string =>
  `${row.namespace}/${row.entity}/${row.check}`

/** Key of a row. */
export type Key = string

const none: EventCounts = { critical: 0, warning: 0, unknown: 0, silenced: 0, ok: 0, total: 0 }

/**
 * A part of a list of events that the server keeps in order, as it is now. Rows change in place at once. While hold is set,
 * rows keep their places: a reader's pointer is among them. What waits then is counted, and release() shows it.
 */
export class EventList {
  readonly query: ListQuery
  state: LiveState = { phase: 'connecting' }
  counts: EventCounts = none
  /** The first window has come. */
  ready = false
  /** Why the server ended the list; undefined while it goes on. */
  failed: string | undefined
  groups: readonly EventGroup[] = []
  groupCount = 0
  /** Counts all changes. */
  version = 0

  private readonly connection: ListOptions['connection']
  private readonly schedule: (f: () => void) => void
  private readonly rows = new Map<Key, EventRow>()
  private readonly changedAt = new Map<Key, number>()
  private readonly listeners = new Set<() => void>()
  private range: Range = { offset: 0, limit: 100 }
  /** The places of the list that are known, as they are drawn. */
  private shown = new Map<number, Key>()
  /** The order that the server sent last, and where it begins. */
  private latest: { offset: number; order: readonly Key[] } = { offset: 0, order: [] }
  private latestTotal = 0
  private shownTotal = 0
  private held = false
  /** The next window is drawn although rows are held: the user has scrolled to it. */
  private redraw = true
  /** Rows that the list no longer has, and that are drawn only because rows are held. */
  private readonly gone = new Set<Key>()
  private stop: (() => void) | undefined
  private scheduled = false

  constructor(options: ListOptions) {
    this.query = options.query
    this.connection = options.connection
    this.schedule = options.schedule ?? ((f) => requestAnimationFrame(f))
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    if (this.listeners.size === 1) this.connect()
    return () => {
      this.listeners.delete(listener)
      if (this.listeners.size === 0) this.disconnect()
    }
  }

  /** Number of rows in the list as it is drawn. */
  get length(): number {
    return this.shownTotal
  }

  /** The row at a place; undefined if it is not loaded. */
  at(place: number): EventRow | undefined {
    const key = this.shown.get(place)
    return key === undefined ? undefined : this.rows.get(key)
  }

  /** The place of a row among those that are loaded; undefined if it is not. */
  placeOf(key: Key): number | undefined {
    for (const [place, at] of this.shown) if (at === key) return place
    return undefined
  }

  get(key: Key): EventRow | undefined {
    return this.rows.get(key)
  }

  /** The list no longer has the row; it is there only because rows are held. */
  isGone(key: Key): boolean {
    return this.gone.has(key)
  }

  /** performance.now() of the last change of a row's status. */
  changed(key: Key): number | undefined {
    return this.changedAt.get(key)
  }

  /** How many places would change if the newest order were drawn. */
  get waiting(): number {
    if (!this.held) return 0
    let n = Math.abs(this.latestTotal - this.shownTotal)
    const { offset, order } = this.latest
    order.forEach((key, i) => {
      if (this.shown.get(offset + i) !== key) n++
    })
    return n
  }

  /** Asks for other places. Places that were loaded stay drawn until the server's answer. */
  show(range: Range): void {
    const limit = Math.min(500, Math.max(1, range.limit))
    if (range.offset === this.range.offset && limit === this.range.limit) return
    this.range = { offset: range.offset, limit }
    this.redraw = true
    if (this.stop) this.connect()
  }

  hold(on: boolean): void {
    if (this.held === on) return
    this.held = on
    if (!on) this.draw()
    this.notify()
  }

  private connect(): void {
    this.disconnect()
    const { query, range } = this
    const params = new URLSearchParams({ sort: query.sort, offset: `${range.offset}`, limit: `${range.limit}` })
    if (query.selector !== '') params.set('fieldSelector', query.selector)
    if (query.groupBy !== '') params.set('groupBy', query.groupBy)
    this.stop = this.connection.follow({
      path: `/api/lapwing/v1/namespaces/${encodeURIComponent(query.namespace)}/events/view/stream?${params}`,
      onMessage: (message) => this.take(message),
      onState: (state) => {
        this.state = state
        this.notify()
      },
    })
  }

  private disconnect(): void {
    this.stop?.()
    this.stop = undefined
  }

  private take(message: ServerEvent): void {
    if (message.type === 'failed') {
      this.failed = (JSON.parse(message.data) as { message: string }).message
    } else if (message.type === 'window') {
      this.merge(JSON.parse(message.data) as EventWindow)
    }
    this.notify()
  }

  private merge(window: EventWindow): void {
    this.failed = undefined
    this.counts = window.counts ?? none
    for (const row of window.rows ?? []) {
      const key = keyOf(row)
      const before = this.rows.get(key)
      if (before && before.status !== row.status) this.changedAt.set(key, performance.now())
      this.rows.set(key, row)
      this.gone.delete(key)
    }
    for (const key of window.gone ?? []) this.gone.add(key)
    if (window.group) this.groups = window.group
    this.groupCount = window.groups ?? 0
    if (window.order) this.latest = { offset: window.offset ?? 0, order: window.order }
    this.latestTotal = this.counts.total ?? 0
    if (this.redraw || !this.held) this.draw()
    this.ready = true
  }

  /** Draws the newest order. Rows that are no longer near are forgotten. */
  private draw(): void {
    const { offset, order } = this.latest
    this.redraw = false
    this.gone.clear()
    const shown = new Map<number, Key>()
    order.forEach((key, i) => shown.set(offset + i, key))
    this.shown = shown
    this.shownTotal = this.latestTotal
    if (this.rows.size > 4 * this.range.limit) {
      const keep = new Set(order)
      for (const key of this.rows.keys()) {
        if (keep.has(key)) continue
        this.rows.delete(key)
        this.changedAt.delete(key)
      }
    }
  }

  private notify(): void {
    this.version++
    if (this.scheduled) return
    this.scheduled = true
    this.schedule(() => {
      this.scheduled = false
      for (const listener of this.listeners) listener()
    })
  }
}

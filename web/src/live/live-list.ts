import type { LiveConnection, LiveState } from './connection'
import type { ServerEvent } from './sse'

/** What a list shows. All of it is done by the server. */
export interface ListQuery {
  /** "-" for all. */
  namespace: string
  /** A field selector; "" for all. */
  selector: string
  sort: string
  /** Counts by this instead of rows; "" for rows. */
  groupBy: string
  /** Rows, or groups, that are asked for at first. Default 100; 0 for the counts alone. */
  first?: number
}

/** The rows, or groups, that the page needs. */
export interface Range {
  offset: number
  limit: number
}

/** A part of a list as the server sends it. In a stream, each has what differs from the one before. */
export interface Window<Row, Counts, Group> {
  counts?: Counts
  offset?: number
  order?: readonly Key[] | null
  rows?: readonly Row[] | null
  gone?: readonly Key[] | null
  groups?: number
  group?: readonly Group[] | null
}

/** What the rows of a list are. */
export interface RowKind<Row, Counts> {
  /** The resource in the paths of the API. */
  resource: string
  keyOf: (row: Row) => Key
  /** What is shown as changed when it differs. */
  stateOf: (row: Row) => unknown
  /** Counts of an empty list. */
  none: Counts
}

export interface ListOptions<Query extends ListQuery = ListQuery> {
  query: Query
  connection: Pick<LiveConnection, 'follow'>
  /** Runs changes together before the next frame. Default requestAnimationFrame. */
  schedule?: (f: () => void) => void
}

/** Key of a row. */
export type Key = string

/**
 * A part of a list that the server keeps in order, as it is now. Rows change in place at once. While hold is set,
 * rows keep their places: a reader's pointer is among them. What waits then is counted, and release() shows it.
 */
export class LiveList<Row, Counts extends { total: number }, Group, Query extends ListQuery = ListQuery> {
  readonly query: Query
  state: LiveState = { phase: 'connecting' }
  counts: Counts
  /** The first window has come. */
  ready = false
  /** Why the server ended the list; undefined while it goes on. */
  failed: string | undefined
  groups: readonly Group[] = []
  groupCount = 0
  /** Counts all changes. */
  version = 0

  private readonly kind: RowKind<Row, Counts>
  private readonly connection: ListOptions['connection']
  private readonly schedule: (f: () => void) => void
  private readonly rows = new Map<Key, Row>()
  private readonly changedAt = new Map<Key, number>()
  private readonly listeners = new Set<() => void>()
  private range: Range
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

  constructor(kind: RowKind<Row, Counts>, options: ListOptions<Query>) {
    this.kind = kind
    this.counts = kind.none
    this.query = options.query
    this.connection = options.connection
    this.range = { offset: 0, limit: options.query.first ?? 100 }
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
  at(place: number): Row | undefined {
    const key = this.shown.get(place)
    return key === undefined ? undefined : this.rows.get(key)
  }

  /** The place of a loaded row; undefined for other rows. */
  placeOf(key: Key): number | undefined {
    for (const [place, at] of this.shown) if (at === key) return place
    return undefined
  }

  get(key: Key): Row | undefined {
    return this.rows.get(key)
  }

  /** The list no longer has the row; it is there only because rows are held. */
  isGone(key: Key): boolean {
    return this.gone.has(key)
  }

  /** performance.now() of the last change of a row's state. */
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
    this.ask(params)
    this.stop = this.connection.follow({
      path: `/api/lapwing/v1/namespaces/${encodeURIComponent(query.namespace)}/${this.kind.resource}/view/stream?${params}`,
      onMessage: (message) => this.take(message),
      onState: (state) => {
        this.state = state
        this.notify()
      },
    })
  }

  /** Adds what else the list asks for. */
  protected ask(_params: URLSearchParams): void {}

  private disconnect(): void {
    this.stop?.()
    this.stop = undefined
  }

  private take(message: ServerEvent): void {
    if (message.type === 'failed') {
      this.failed = (JSON.parse(message.data) as { message: string }).message
    } else if (message.type === 'window') {
      this.merge(JSON.parse(message.data) as Window<Row, Counts, Group>)
    }
    this.notify()
  }

  protected merge(window: Window<Row, Counts, Group>): void {
    this.failed = undefined
    this.counts = window.counts ?? this.kind.none
    for (const row of window.rows ?? []) {
      const key = this.kind.keyOf(row)
      const before = this.rows.get(key)
      if (before && this.kind.stateOf(before) !== this.kind.stateOf(row)) this.changedAt.set(key, performance.now())
      this.rows.set(key, row)
      this.gone.delete(key)
    }
    for (const key of window.gone ?? []) this.gone.add(key)
    if (window.group) this.groups = window.group
    this.groupCount = window.groups ?? 0
    if (window.order) this.latest = { offset: window.offset ?? 0, order: window.order }
    this.latestTotal = this.counts.total
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

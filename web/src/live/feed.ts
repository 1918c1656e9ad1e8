import type { Session } from '../session/session'
import { EventStore, type ViewOptions } from '../store/store'
import type { SensuEvent } from '../api/types'
import type { Batch, FromWorker, StreamState, ToWorker } from './protocol'

/** The worker, as the feed uses it. */
export interface Port {
  postMessage(message: ToWorker): void
  onmessage: ((message: MessageEvent<FromWorker>) => void) | null
  terminate(): void
}

export interface FeedOptions {
  namespace: string
  session: Pick<Session, 'token'>
  port: Port
  /** Calls back when the page may draw. */
  frame?: (callback: () => void) => void
  now?: () => number
}

// A list that is reordered more often than this is restless to read.
const reorderEvery = 250
const heldRecheck = 500

/**
 * One namespace's events on the page: takes batches from the worker into the store and notifies the views once a
 * frame. It acknowledges a batch only after a frame has been drawn, so a slow page is sent fewer, larger batches.
 */
export class Feed {
  readonly namespace: string
  readonly store = new EventStore()
  /** Counts changes of anything a view reads from here. */
  version = 0
  stream: StreamState = { phase: 'connecting' }
  /** When the backend was last heard, in Unix milliseconds; 0 before the first time. */
  heard = 0
  /** How long the last batch's oldest change waited to be taken in, and when that was measured. */
  lag = { ms: 0, at: 0 }
  /** The full form of the watched event after its last live change. */
  watched: { key: string; event: SensuEvent } | undefined
  /** Reports whether the user is reading the list, so that rows must keep their places. */
  held: () => boolean = () => false
  /** Rows stay out of place while the user reads, not just for a moment. */
  holding = false

  private readonly port: Port
  private readonly session: FeedOptions['session']
  private readonly frame: (callback: () => void) => void
  private readonly now: () => number
  private readonly listeners = new Set<() => void>()
  private watchKey: string | undefined
  private unacknowledged = false
  private drawing = false
  private closed = false
  /** The first load is in the view. */
  private filled = false
  private reorderedAt = -Infinity
  private reorderCost = 0
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(options: FeedOptions) {
    this.namespace = options.namespace
    this.session = options.session
    this.port = options.port
    this.frame = options.frame ?? nextFrame
    this.now = options.now ?? Date.now
    this.port.onmessage = ({ data }) => this.receive(data)
    this.port.postMessage({ kind: 'open', namespace: options.namespace })
  }

  close(): void {
    this.closed = true
    clearTimeout(this.timer)
    this.port.onmessage = null
    this.port.terminate()
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  watch(key: string | undefined): void {
    this.watchKey = key
    this.watched = undefined
    this.port.postMessage({ kind: 'watch', key })
  }

  setView(options: ViewOptions): void {
    this.store.setView(options)
    this.draw()
  }

  /** Puts the rows in their places now, whatever the user is doing. */
  reorder(): void {
    this.store.reorder()
    this.holding = false
    this.draw()
  }

  private receive(message: FromWorker): void {
    if (this.closed) return
    switch (message.kind) {
      case 'state':
        this.stream = message.state
        this.draw()
        break
      case 'pulse':
        this.heard = message.at
        break
      case 'token':
        void this.answer(message.stale)
        break
      case 'batch':
        this.take(message.batch)
        break
    }
  }

  private take(batch: Batch): void {
    const now = this.now()
    this.heard = Math.max(this.heard, now)
    this.lag = { ms: now - batch.received, at: now }
    this.store.apply(batch)
    if (batch.watched && this.watchKey !== undefined) this.watched = { key: this.watchKey, event: batch.watched }
    this.unacknowledged = true
    this.draw()
  }

  private async answer(stale: string | undefined): Promise<void> {
    for (;;) {
      try {
        const token = await this.session.token(stale)
        if (!this.closed) this.port.postMessage({ kind: 'token', token })
        return
      } catch (err) {
        // The backend cannot be reached to renew the token. The worker waits for its answer.
        if (this.closed) return
        const reason = err instanceof Error ? err.message : String(err)
        this.stream = { phase: 'waiting', until: this.now() + 3000, reason }
        this.draw()
        await new Promise((resolve) => setTimeout(resolve, 3000))
        if (this.closed) return
      }
    }
  }

  private draw(): void {
    if (this.drawing || this.closed) return
    this.drawing = true
    this.frame(() => {
      this.drawing = false
      if (this.closed) return
      this.reorderIfDue()
      this.version++
      for (const listener of this.listeners) listener()
      if (this.unacknowledged) {
        this.unacknowledged = false
        this.port.postMessage({ kind: 'ack' })
      }
    })
  }

  private reorderIfDue(): void {
    clearTimeout(this.timer)
    this.holding = false
    if (this.store.misplaced === 0) {
      this.filled = this.store.synced
      return
    }
    const now = performance.now()
    // At most a tenth of the time is spent on this, however many rows there are.
    const due = this.reorderedAt + Math.max(reorderEvery, this.reorderCost * 10)
    // The first load fills the list as it comes; there is no order yet to keep.
    this.holding = this.filled && this.held()
    if (this.holding || now < due) {
      this.timer = setTimeout(() => this.draw(), this.holding ? heldRecheck : due - now)
      return
    }
    this.store.reorder()
    this.filled = this.store.synced
    this.reorderedAt = performance.now()
    this.reorderCost = this.reorderedAt - now
  }
}

/** The next frame; in a hidden tab, where there are none, a moment later. */
function nextFrame(callback: () => void): void {
  const once = () => {
    cancelAnimationFrame(frame)
    clearTimeout(timer)
    callback()
  }
  const frame = requestAnimationFrame(once)
  const timer = setTimeout(once, 300)
}

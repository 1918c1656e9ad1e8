import type { SensuEvent } from '../api/types'
import { keyOf, toRow, type EventRef, type RowData } from './event'
import type { Batch } from './protocol'

/**
 * Gathers changes between two sends. A key that changes twice is sent once, so memory is bounded by the number of
 * events at any rate. After a batch it waits for ack(), so a busy page gets fewer, larger batches.
 */
export class Batcher {
  watch: string | undefined
  private pending = new Map<string, RowData | undefined>()
  private watched: SensuEvent | undefined
  private synced = false
  private received = 0
  private epoch = 0
  private waiting = false
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly send: (batch: Batch) => void
  private readonly interval: number

  constructor(send: (batch: Batch) => void, interval = 50) {
    this.send = send
    this.interval = interval
  }

  /** Starts a new connection: what was not sent yet belongs to the old one. */
  begin(): void {
    this.epoch++
    this.pending = new Map()
    this.watched = undefined
    this.synced = false
  }

  event(event: SensuEvent): void {
    const row = toRow(event)
    if (!row) return
    this.note()
    this.pending.set(row.key, row)
    if (row.key === this.watch) this.watched = event
    this.schedule()
  }

  remove(ref: EventRef): void {
    this.note()
    const key = keyOf(ref)
    this.pending.set(key, undefined)
    if (key === this.watch) this.watched = undefined
    this.schedule()
  }

  /** Reports to the page that every current event has been sent. */
  sync(): void {
    this.note()
    this.synced = true
    this.schedule()
  }

  ack(): void {
    this.waiting = false
    this.schedule()
  }

  /** Call before the first change of a batch is added. */
  private note(): void {
    if (this.empty()) this.received = Date.now()
  }

  private empty(): boolean {
    return this.pending.size === 0 && !this.synced
  }

  private schedule(): void {
    if (this.timer !== undefined || this.waiting || this.empty()) return
    this.timer = setTimeout(() => {
      this.timer = undefined
      this.flush()
    }, this.interval)
  }

  private flush(): void {
    if (this.empty() || this.waiting) return
    const rows: RowData[] = []
    const deleted: string[] = []
    for (const [key, row] of this.pending) {
      if (row) rows.push(row)
      else deleted.push(key)
    }
    const batch: Batch = {
      epoch: this.epoch,
      rows,
      deleted,
      watched: this.watched,
      synced: this.synced,
      received: this.received,
    }
    this.pending = new Map()
    this.watched = undefined
    this.synced = false
    this.waiting = true
    this.send(batch)
  }
}

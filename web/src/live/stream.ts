import { Backoff } from './backoff'
import type { SensuEvent } from '../api/types'
import type { EventRef } from './event'
import type { StreamState } from './protocol'
import { SSEParser } from './sse'

export interface StreamHandlers {
  /** Every current event follows, then onSynced, then changes. A connection that goes on from the last one has no onOpen. */
  onOpen(): void
  onEvent(event: SensuEvent): void
  onDelete(ref: EventRef): void
  onSynced(): void
  onState(state: StreamState): void
  onBytes(): void
}

export interface StreamOptions {
  namespace: string
  /** Resolves to an access token, a newer one than `stale` if that is given; undefined when the sign-in is over. */
  token(stale?: string): Promise<string | undefined>
  handlers: StreamHandlers
  fetch?: typeof fetch
  backoff?: Backoff
  /** The backend sends at least a comment every 5 s; a connection silent for longer than this is closed. */
  silence?: number
}

/**
 * Follows a namespace's events ("-" for all) and reconnects until close() is called. A new connection, maybe to another
 * backend of the cluster, brings only what has changed since the last one.
 */
export class EventStream {
  private readonly o: Required<StreamOptions>
  private readonly stop = new AbortController()
  /** The backends' name for the stream's position; empty to begin with all events. */
  private position = ''

  constructor(options: StreamOptions) {
    this.o = { fetch: (...args) => fetch(...args), backoff: new Backoff(), silence: 15_000, ...options }
  }

  close(): void {
    this.stop.abort()
  }

  async run(): Promise<void> {
    const { handlers, backoff } = this.o
    let stale: string | undefined
    let refused = 0
    while (!this.stop.signal.aborted) {
      handlers.onState({ phase: 'connecting' })
      let reason: string
      try {
        const token = await this.o.token(stale)
        if (this.stop.signal.aborted || token === undefined) return
        stale = undefined
        const end = await this.connect(token)
        if (end.denied !== undefined) {
          handlers.onState({ phase: 'denied', reason: end.denied })
          return
        }
        reason = end.reason
        if (end.unauthorized) {
          stale = token
          // The first refusal is an expired token: get a new one at once. A second in a row waits like any failure.
          if (++refused === 1) continue
        } else {
          refused = 0
        }
      } catch (err) {
        reason = err instanceof Error ? err.message : String(err)
      }
      if (this.stop.signal.aborted) return
      const wait = backoff.next()
      handlers.onState({ phase: 'waiting', until: Date.now() + wait, reason })
      await this.sleep(wait)
    }
  }

  private async connect(token: string): Promise<{ reason: string; unauthorized?: boolean; denied?: string }> {
    const { namespace, handlers, backoff, silence } = this.o
    const abort = new AbortController()
    const onStop = () => abort.abort()
    this.stop.signal.addEventListener('abort', onStop)
    let silent = false
    let watchdog: ReturnType<typeof setTimeout> | undefined
    const feedWatchdog = () => {
      clearTimeout(watchdog)
      watchdog = setTimeout(() => {
        silent = true
        abort.abort()
      }, silence)
    }

    try {
      feedWatchdog()
      const headers: Record<string, string> = { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' }
      if (this.position !== '') headers['Last-Event-ID'] = this.position
      const url = `/api/lapwing/v1/namespaces/${encodeURIComponent(namespace)}/events/stream`
      const response = await this.o.fetch(url, {
        headers,
        cache: 'no-store',
        signal: abort.signal,
      })
      if (response.status === 401) return { reason: 'not signed in', unauthorized: true }
      if (response.status === 403) return { reason: 'denied', denied: 'list' }
      if (!response.ok || !response.body) return { reason: `the server answered ${response.status}` }

      let whole = true // no event is missing up to the parser's id
      const begin = () => {
        whole = false
        handlers.onOpen()
        handlers.onState({ phase: 'loading' })
      }
      if (this.position === '') begin()
      let end: string | undefined
      const parser = new SSEParser((message) => {
        switch (message.type) {
          case 'event':
            handlers.onEvent(JSON.parse(message.data) as SensuEvent)
            break
          case 'delete':
            handlers.onDelete(JSON.parse(message.data) as EventRef)
            break
          case 'reset':
            begin()
            break
          case 'synced':
            whole = true
            backoff.reset()
            handlers.onSynced()
            handlers.onState({ phase: 'live' })
            break
          case 'overflow':
            end = 'this page could not keep up'
            break
        }
      }, this.position)
      const reader = response.body.getReader()
      const decoder = new TextDecoder()
      while (end === undefined) {
        const { done, value } = await reader.read()
        if (done) return { reason: 'the server closed the connection' }
        feedWatchdog()
        handlers.onBytes()
        parser.feed(decoder.decode(value, { stream: true }))
        this.position = whole ? parser.id : ''
      }
      return { reason: end }
    } catch (err) {
      if (silent) return { reason: `nothing heard for ${silence / 1000} s` }
      throw err
    } finally {
      clearTimeout(watchdog)
      this.stop.signal.removeEventListener('abort', onStop)
      abort.abort()
    }
  }

  private sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        this.stop.signal.removeEventListener('abort', done)
        resolve()
      }
      const timer = setTimeout(done, ms)
      this.stop.signal.addEventListener('abort', done)
    })
  }
}

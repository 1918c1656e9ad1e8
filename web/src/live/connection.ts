import { Backoff } from './backoff'
import { SSEParser, type ServerEvent } from './sse'

/** How a live stream stands. */
export type LiveState =
  | { phase: 'connecting' }
  | { phase: 'live'; /** Date.now() of the last sign of life. */ heard: number }
  | { phase: 'waiting'; until: number; reason: string }
  /** A retry is useless until the user acts. */
  | { phase: 'denied'; reason: string; /** Of the answer: 400 for a request that cannot be read, 403 without the right. */ status: number }

export interface Stream {
  /** Path and query of a stream of the API. */
  path: string
  onMessage(message: ServerEvent): void
  onState(state: LiveState): void
}

type Socket = Pick<WebSocket, 'send' | 'close' | 'addEventListener'>

export interface ConnectionOptions {
  /** Opens the websocket. */
  connect: () => Socket
  /** Renews the sign-in if it has ended. It throws if the backend cannot be reached. */
  renew: () => Promise<unknown>
  backoff?: Backoff
}

/** What the server says of a stream that is over. */
interface End {
  id?: number
  status?: number
  message?: string
}

/** A stream, and where it stands. */
class Running {
  id = 0
  readonly backoff = new Backoff()
  readonly stream: Stream
  readonly parser: SSEParser
  timer: ReturnType<typeof setTimeout> | undefined

  constructor(stream: Stream) {
    this.stream = stream
    this.parser = new SSEParser((message) => stream.onMessage(message))
  }

  get path(): string {
    const { path } = this.stream
    return this.parser.id === '' ? path : `${path}${path.includes('?') ? '&' : '?'}last_event_id=${encodeURIComponent(this.parser.id)}`
  }
}

/** The backend sends at least a sign of life every 5 s; a connection silent for longer than this is closed. In ms. */
const silence = 15_000
/** The connection stays open so long without a stream: screens close theirs before the next one opens its own. In ms. */
const linger = 5_000

/**
 * The page's one connection to the backend for all its live streams: a browser opens six to a host at most, all tabs together.
 * It connects again until it is closed. A stream goes on from the last id that the server sent, if it sends any.
 */
export class LiveConnection {
  private readonly options: ConnectionOptions
  private readonly backoff: Backoff
  private readonly streams = new Set<Running>()
  private readonly byID = new Map<number, Running>()
  private socket: Socket | undefined
  private open = false
  private lastID = 0
  private heard = 0
  private watchdog: ReturnType<typeof setTimeout> | undefined
  private retry: ReturnType<typeof setTimeout> | undefined
  private unused: ReturnType<typeof setTimeout> | undefined

  constructor(options: ConnectionOptions) {
    this.options = options
    this.backoff = options.backoff ?? new Backoff()
  }

  /** Opens a stream, and returns what closes it. */
  follow(stream: Stream): () => void {
    const running = new Running(stream)
    this.streams.add(running)
    clearTimeout(this.unused)
    stream.onState({ phase: 'connecting' })
    if (this.open) this.ask(running)
    else if (!this.socket && this.retry === undefined) this.connect()
    return () => {
      clearTimeout(running.timer)
      this.streams.delete(running)
      if (this.byID.delete(running.id) && this.open) this.socket?.send(JSON.stringify({ close: running.id }))
      if (this.streams.size > 0) return
      clearTimeout(this.unused)
      this.unused = setTimeout(() => this.close(), linger)
    }
  }

  /** Connects before the first stream, while the screen is still being made. */
  ahead(): void {
    if (this.socket || this.retry !== undefined) return
    this.connect()
    if (this.streams.size === 0) this.unused = setTimeout(() => this.close(), linger)
  }

  /** Closes the connection at once: it has the rights of a sign-in that is over. The next stream opens another one. */
  reset(): void {
    clearTimeout(this.unused)
    this.close()
    for (const running of this.streams) clearTimeout(running.timer)
  }

  /** Goes over to a new connection, with the sign-in as it is now: the server ends streams some time after their sign-in has ended. */
  renew(): void {
    if (!this.open) return
    const before = this.forget()
    this.connect(true)
    before?.close()
  }

  private close(): void {
    clearTimeout(this.retry)
    this.retry = undefined
    this.forget()?.close()
  }

  /** Drops the socket, so that it says nothing more. */
  private forget(): Socket | undefined {
    const { socket } = this
    this.socket = undefined
    this.open = false
    this.byID.clear()
    clearTimeout(this.watchdog)
    return socket
  }

  private connect(quietly = false): void {
    this.retry = undefined
    if (!quietly) for (const running of this.streams) running.stream.onState({ phase: 'connecting' })
    const socket = this.options.connect()
    this.socket = socket
    const mine = (f: () => void) => () => {
      if (this.socket === socket) f()
    }
    socket.addEventListener(
      'open',
      mine(() => {
        this.open = true
        this.alive()
        for (const running of this.streams) this.ask(running)
      }),
    )
    socket.addEventListener('message', (event) => {
      if (this.socket === socket) this.take(String((event as MessageEvent).data))
    })
    socket.addEventListener(
      'close',
      mine(() => this.lost('the connection was closed')),
    )
    this.watch()
  }

  private watch(): void {
    clearTimeout(this.watchdog)
    this.watchdog = setTimeout(() => this.lost(`nothing heard for ${silence / 1000} s`), silence)
  }

  private alive(): void {
    this.watch()
    const now = Date.now()
    if (now - this.heard < 1000) return
    this.heard = now
    for (const running of this.byID.values()) running.stream.onState({ phase: 'live', heard: now })
  }

  private ask(running: Running): void {
    clearTimeout(running.timer)
    this.byID.delete(running.id)
    running.id = ++this.lastID
    running.parser.begin()
    this.byID.set(running.id, running)
    this.socket?.send(JSON.stringify({ open: running.id, path: running.path }))
  }

  private take(data: string): void {
    this.backoff.reset()
    if (data.startsWith('{')) {
      const end = JSON.parse(data) as End
      if (end.id !== undefined) this.ended(end.id, end)
    } else {
      const colon = data.indexOf(':')
      const running = this.byID.get(Number(data.slice(0, colon)))
      if (running) {
        running.backoff.reset()
        running.stream.onState({ phase: 'live', heard: Date.now() })
        running.parser.feed(data.slice(colon + 1))
      }
    }
    this.alive()
  }

  private ended(id: number, { status = 0, message }: End): void {
    const running = this.byID.get(id)
    if (!running) return
    this.byID.delete(id)
    if (status === 401) {
      this.lost('the sign-in has ended')
      return
    }
    const reason = message || (status === 200 || status === 0 ? 'the server ended the stream' : `the server answered ${status}`)
    if (status === 400 || status === 403 || status === 404) {
      running.stream.onState({ phase: 'denied', reason, status })
      return
    }
    const wait = running.backoff.next()
    running.stream.onState({ phase: 'waiting', until: Date.now() + wait, reason })
    running.timer = setTimeout(() => {
      if (this.open) this.ask(running)
    }, wait)
  }

  /** Connects anew after a while. */
  private lost(reason: string): void {
    this.forget()?.close()
    const wait = this.backoff.next()
    for (const running of this.streams) running.stream.onState({ phase: 'waiting', until: Date.now() + wait, reason })
    const retry = setTimeout(() => {
      if (this.streams.size === 0) {
        this.retry = undefined
        return
      }
      this.options.renew().then(
        () => {
          if (this.retry !== retry) return // closed, or connected for another reason
          if (this.streams.size > 0) this.connect()
          else this.retry = undefined
        },
        (err: unknown) => {
          if (this.retry === retry) this.lost(err instanceof Error ? err.message : String(err))
        },
      )
    }, wait)
    this.retry = retry
  }
}

import { Backoff } from './backoff'
import { SSEParser, type ServerEvent } from './sse'

/** How a live connection stands. */
export type LiveState =
  | { phase: 'connecting' }
  | { phase: 'live'; /** Date.now() of the last sign of life. */ heard: number }
  | { phase: 'waiting'; until: number; reason: string }
  /** A retry is useless until the user acts. */
  | { phase: 'denied'; reason: string }

export interface FollowOptions {
  url: string
  fetch: typeof fetch
  onMessage(message: ServerEvent): void
  /** A new connection begins: what is shown stays until its first message. */
  onOpen?(): void
  onState(state: LiveState): void
  backoff?: Backoff
  /** The backend sends at least a comment every 5 s; a connection silent for longer than this is closed. */
  silence?: number
}

/**
 * Reads server-sent events and connects again until the signal ends it. It goes on from the last id that the server sent,
 * if it sends any.
 */
export async function follow(options: FollowOptions, stop: AbortSignal): Promise<void> {
  const { onState, backoff = new Backoff() } = options
  let position = ''
  while (!stop.aborted) {
    onState({ phase: 'connecting' })
    let reason: string
    try {
      const end = await connect(options, position, stop, backoff)
      position = end.position
      if (end.denied) {
        onState({ phase: 'denied', reason: end.reason })
        return
      }
      reason = end.reason
    } catch (err) {
      reason = err instanceof Error ? err.message : String(err)
    }
    if (stop.aborted) return
    const wait = backoff.next()
    onState({ phase: 'waiting', until: Date.now() + wait, reason })
    await sleep(wait, stop)
  }
}

interface End {
  reason: string
  position: string
  denied?: boolean
}

async function connect(options: FollowOptions, position: string, stop: AbortSignal, backoff: Backoff): Promise<End> {
  const { url, onMessage, onState, silence = 15_000 } = options
  const abort = new AbortController()
  const onStop = () => abort.abort()
  stop.addEventListener('abort', onStop)
  let silent = false
  let watchdog: ReturnType<typeof setTimeout> | undefined
  const alive = () => {
    clearTimeout(watchdog)
    watchdog = setTimeout(() => {
      silent = true
      abort.abort()
    }, silence)
  }
  try {
    alive()
    const headers: Record<string, string> = { Accept: 'text/event-stream' }
    if (position !== '') headers['Last-Event-ID'] = position
    const response = await options.fetch(url, { headers, cache: 'no-store', signal: abort.signal })
    if (response.status === 401) return { reason: 'not signed in', position }
    if (!response.ok || !response.body) {
      const reason = await messageOf(response)
      return { reason, position, denied: response.status === 403 || response.status === 400 || response.status === 404 }
    }
    options.onOpen?.()
    let heard = 0
    const parser = new SSEParser(onMessage, position)
    const reader = response.body.getReader()
    const decoder = new TextDecoder()
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return { reason: 'the server closed the connection', position: parser.id }
      alive()
      backoff.reset()
      parser.feed(decoder.decode(value, { stream: true }))
      const now = Date.now()
      if (now - heard > 1000) {
        heard = now
        onState({ phase: 'live', heard })
      }
    }
  } catch (err) {
    if (silent) return { reason: `nothing heard for ${silence / 1000} s`, position }
    throw err
  } finally {
    clearTimeout(watchdog)
    stop.removeEventListener('abort', onStop)
    abort.abort()
  }
}

/** The server's own words about a refusal. */
export async function messageOf(response: Response): Promise<string> {
  const body = await response.text()
  try {
    const { message } = JSON.parse(body) as { message?: string }
    if (message) return message
  } catch {
    // not JSON
  }
  return `the server answered ${response.status}`
}

function sleep(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer)
      stop.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    stop.addEventListener('abort', done)
  })
}

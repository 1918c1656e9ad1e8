import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Backoff } from './backoff'
import { EventStream } from './stream'

/** A response whose body the test writes to. */
function connection() {
  let controller!: ReadableStreamDefaultController<Uint8Array>
  const body = new ReadableStream<Uint8Array>({ start: (c) => void (controller = c) })
  return {
    response: new Response(body, { status: 200 }),
    write: (s: string | Uint8Array) => controller.enqueue(typeof s === 'string' ? new TextEncoder().encode(s) : s),
    end: () => controller.close(),
    break: () => controller.error(new TypeError('network error')),
  }
}

function setup(...answers: (Response | Error)[]) {
  const log: string[] = []
  const requests: { url: string; authorization: string | null; position: string | null; signal: AbortSignal }[] = []
  let token = 0
  const stream = new EventStream({
    namespace: 'a b',
    backoff: new Backoff(1000, 8000, () => 1),
    silence: 15_000,
    token: async (stale) => {
      if (stale !== undefined || token === 0) token++
      return `t${token}`
    },
    fetch: async (url, init) => {
      const signal = init?.signal as AbortSignal
      const headers = new Headers(init?.headers)
      requests.push({ url: String(url), authorization: headers.get('Authorization'), position: headers.get('Last-Event-ID'), signal })
      const answer = answers.shift()
      if (!answer) return new Promise<Response>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
      if (answer instanceof Error) throw answer
      // As a browser does, an abort breaks the body that is being read.
      if (!answer.body) return answer
      const reader = answer.body.getReader()
      const body = new ReadableStream<Uint8Array>({
        start: (c) => signal.addEventListener('abort', () => c.error(signal.reason)),
        async pull(c) {
          const { done, value } = await reader.read()
          if (signal.aborted) return
          if (done) c.close()
          else c.enqueue(value)
        },
      })
      return new Response(body, { status: answer.status })
    },
    handlers: {
      onOpen: () => log.push('open'),
      onEvent: (event) => log.push(`event ${event.check?.metadata?.name}`),
      onDelete: (ref) => log.push(`delete ${ref.check}`),
      onSynced: () => log.push('synced'),
      onState: (state) => log.push(state.phase === 'waiting' ? `waiting: ${state.reason}` : state.phase),
      onBytes: () => {},
    },
  })
  const done = stream.run()
  const flush = () => vi.advanceTimersByTimeAsync(0)
  return { stream, done, log, requests, flush }
}

describe('EventStream', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  test('loads, goes live and passes changes on', async () => {
    const c = connection()
    const t = setup(c.response)
    c.write('event: event\ndata: {"check":{"metadata":{"name":"x"}}}\n\nevent: synced\ndata: {}\n\n')
    c.write('event: event\ndata: {"check":{"metadata":{"name":"y"}}}\n\n: heartbeat\n\nevent: delete\ndata: {"check":"x"}\n\n')
    await t.flush()
    expect(t.log).toEqual(['connecting', 'open', 'loading', 'event x', 'synced', 'live', 'event y', 'delete x'])
    expect(t.requests[0]).toMatchObject({ url: '/api/lapwing/v1/namespaces/a%20b/events/stream', authorization: 'Bearer t1' })
    t.stream.close()
    await t.done
    expect(t.requests[0]?.signal.aborted).toBe(true)
  })

  test('joins characters cut between chunks', async () => {
    const c = connection()
    const t = setup(c.response)
    const bytes = new TextEncoder().encode('event: event\ndata: {"check":{"metadata":{"name":"é🐦"}}}\n\n')
    for (const byte of bytes) c.write(Uint8Array.of(byte))
    await vi.advanceTimersByTimeAsync(1)
    expect(t.log).toContain('event é🐦')
    t.stream.close()
  })

  test('reconnects with growing waits, from the start again once live', async () => {
    const live = connection()
    const t = setup(new TypeError('refused'), new Response(null, { status: 503 }), live.response)
    await t.flush()
    expect(t.log.at(-1)).toBe('waiting: refused')
    await vi.advanceTimersByTimeAsync(999)
    expect(t.requests).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(1)
    expect(t.log.at(-1)).toBe('waiting: the server answered 503')
    await vi.advanceTimersByTimeAsync(2000)
    expect(t.requests).toHaveLength(3)
    live.write('event: synced\ndata: {}\n\n')
    await t.flush()
    live.break()
    await t.flush()
    expect(t.log.slice(-2)).toEqual(['live', 'waiting: network error'])
    await vi.advanceTimersByTimeAsync(1000)
    expect(t.requests).toHaveLength(4)
    t.stream.close()
    await t.done
  })

  test('goes on from the last position, without loading again', async () => {
    const [first, second] = [connection(), connection()]
    const t = setup(first.response, second.response)
    first.write('event: event\ndata: {"check":{"metadata":{"name":"x"}}}\n\nevent: synced\nid: 7-1\ndata: {}\n\nid: 7-2\n\n')
    await t.flush()
    first.break()
    await vi.advanceTimersByTimeAsync(1000)
    second.write('event: event\ndata: {"check":{"metadata":{"name":"y"}}}\n\nevent: synced\nid: 8-1\ndata: {}\n\n')
    await t.flush()
    expect(t.requests.map((r) => r.position)).toEqual([null, '7-2'])
    expect(t.log.slice(2)).toEqual(['loading', 'event x', 'synced', 'live', 'waiting: network error', 'connecting', 'event y', 'synced', 'live'])
    t.stream.close()
    await t.done
  })

  test('loads again when its position is not known, or was taken back', async () => {
    const c = [connection(), connection(), connection(), connection()]
    const t = setup(...c.map((one) => one.response))
    const again = async (i: number, text: string) => {
      c[i]?.write(text)
      await t.flush()
      c[i]?.break()
      await vi.advanceTimersByTimeAsync(8000)
    }
    await again(0, 'event: synced\nid: 7-1\ndata: {}\n\n')
    await again(1, 'event: reset\ndata: {}\n\nevent: event\ndata: {"check":{"metadata":{"name":"x"}}}\n\n')
    await again(2, 'event: synced\nid: 8-1\ndata: {}\n\nid:\n\n')
    expect(t.requests.map((r) => r.position)).toEqual([null, '7-1', null, null])
    expect(t.log.filter((line) => line === 'open')).toHaveLength(4)
    t.stream.close()
    await t.done
  })

  test('overflow reconnects', async () => {
    const c = connection()
    const t = setup(c.response)
    c.write('event: synced\ndata: {}\n\nevent: overflow\ndata: {}\n\n')
    await t.flush()
    expect(t.log.at(-1)).toBe('waiting: this page could not keep up')
    expect(t.requests[0]?.signal.aborted).toBe(true)
    await vi.advanceTimersByTimeAsync(1000)
    expect(t.requests).toHaveLength(2)
    t.stream.close()
  })

  test('gives up a silent connection', async () => {
    const c = connection()
    const t = setup(c.response)
    c.write(': heartbeat\n\n')
    await vi.advanceTimersByTimeAsync(14_000)
    c.write(': heartbeat\n\n')
    await vi.advanceTimersByTimeAsync(14_999)
    expect(t.log.at(-1)).toBe('loading')
    await vi.advanceTimersByTimeAsync(1)
    expect(t.log.at(-1)).toBe('waiting: nothing heard for 15 s')
    t.stream.close()
  })

  test('a refused token is renewed at once, a second refusal waits', async () => {
    const t = setup(new Response(null, { status: 401 }), new Response(null, { status: 401 }))
    await t.flush()
    expect(t.requests.map((r) => r.authorization)).toEqual(['Bearer t1', 'Bearer t2'])
    expect(t.log.at(-1)).toBe('waiting: not signed in')
    t.stream.close()
  })

  test('a user without permission is not tried again', async () => {
    const t = setup(new Response(null, { status: 403 }))
    await t.done
    expect(t.log).toEqual(['connecting', 'denied'])
    expect(t.requests).toHaveLength(1)
  })

  test('close during a wait ends it', async () => {
    const t = setup(new TypeError('refused'))
    await t.flush()
    t.stream.close()
    await t.done
    expect(t.requests).toHaveLength(1)
  })
})

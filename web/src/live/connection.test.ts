import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Backoff } from './backoff'
import { LiveConnection, type LiveState } from './connection'

/** Sockets whose server the test plays. */
class FakeSocket extends EventTarget {
  sent: string[] = []
  closed = false
  send(data: string) {
    this.sent.push(data)
  }
  close() {
    this.closed = true
  }
  opens() {
    this.dispatchEvent(new Event('open'))
  }
  says(data: string) {
    this.dispatchEvent(new MessageEvent('message', { data }))
  }
  drops() {
    this.dispatchEvent(new Event('close'))
  }
}

beforeEach(() => vi.useFakeTimers())
afterEach(() => vi.useRealTimers())

function play(renew: () => Promise<unknown> = () => Promise.resolve()) {
  const sockets: FakeSocket[] = []
  const connection = new LiveConnection({
    connect: () => {
      const socket = new FakeSocket()
      sockets.push(socket)
      return socket as unknown as WebSocket
    },
    renew,
    backoff: new Backoff(1000, 1000, () => 1),
  })
  const follow = (path: string) => {
    const got: string[] = []
    const states: LiveState[] = []
    const close = connection.follow({ path, onMessage: (m) => got.push(`${m.type} ${m.data}`), onState: (state) => states.push(state) })
    return { got, states, close, phase: () => states.at(-1)?.phase }
  }
  return { connection, sockets, follow, last: () => sockets.at(-1) as FakeSocket }
}

test('a connection that is ahead of the screen is used by its streams, and closed without any', () => {
  const { connection, sockets, follow, last } = play()
  connection.ahead()
  connection.ahead()
  expect(sockets.length).toBe(1)
  const a = follow('/a')
  last().opens()
  expect(last().sent).toEqual(['{"open":1,"path":"/a"}'])
  vi.advanceTimersByTime(6000)
  expect(last().closed).toBe(false)
  a.close()
  vi.advanceTimersByTime(6000)
  expect(last().closed).toBe(true)

  connection.ahead()
  expect(sockets.length).toBe(2)
  last().opens()
  vi.advanceTimersByTime(6000)
  expect(last().closed).toBe(true)
})

test('a sign-in that is over takes its connection with it', () => {
  const { connection, sockets, follow, last } = play()
  const a = follow('/a')
  last().opens()
  const old = last()
  connection.reset()
  expect(old.closed).toBe(true)
  old.says('1:event: window\ndata: 1\n\n')
  expect(a.got).toEqual([])
  a.close()
  follow('/b')
  expect(sockets.length).toBe(2)
  last().opens()
  expect(last().sent).toEqual(['{"open":2,"path":"/b"}'])
})

test('after a renewal the streams go on with the new sign-in, and say nothing of it', () => {
  const { connection, sockets, follow, last } = play()
  const a = follow('/a')
  last().opens()
  last().says('1:event: window\ndata: 1\n\n')
  const old = last()
  const states = a.states.length
  connection.renew()
  expect(old.closed).toBe(true)
  expect(sockets.length).toBe(2)
  last().opens()
  last().says('2:event: window\ndata: 2\n\n')
  expect(a.got).toEqual(['window 1', 'window 2'])
  expect(a.states.slice(states).map(({ phase }) => phase)).toEqual(['live'])
})

test('streams share a socket, and each gets its own messages', () => {
  const { sockets, follow, last } = play()
  const a = follow('/a')
  const b = follow('/b?x=1')
  expect(sockets.length).toBe(1)
  last().opens()
  expect(last().sent).toEqual(['{"open":1,"path":"/a"}', '{"open":2,"path":"/b?x=1"}'])
  last().says('2:event: window\ndata: {"n":')
  last().says('1:event: window\ndata: 1\n\n')
  last().says('2:2}\n\n')
  expect(a.got).toEqual(['window 1'])
  expect(b.got).toEqual(['window {"n":2}'])
  expect(a.phase()).toBe('live')
  b.close()
  expect(last().sent.at(-1)).toBe('{"close":2}')
  last().says('2:event: window\ndata: 3\n\n')
  last().says('{"id":2,"status":200}')
  expect(b.got.length).toBe(1)
  const c = follow('/c')
  expect(last().sent.at(-1)).toBe('{"open":3,"path":"/c"}')
  a.close()
  c.close()
  vi.advanceTimersByTime(6000)
  expect(last().closed).toBe(true)
})

test('a lost connection is made again, and streams go on from their last id', async () => {
  const { sockets, follow, last } = play()
  const a = follow('/a')
  const b = follow('/b?x=1')
  last().opens()
  last().says('1:id: 7\nevent: e\ndata: 1\n\n')
  last().says('2:id: 9\nevent: e\ndata: 1\n\n2:event: half')
  last().drops()
  expect(a.phase()).toBe('waiting')
  await vi.advanceTimersByTimeAsync(1000)
  expect(sockets.length).toBe(2)
  expect(a.phase()).toBe('connecting')
  last().opens()
  expect(last().sent).toEqual(['{"open":3,"path":"/a?last_event_id=7"}', '{"open":4,"path":"/b?x=1&last_event_id=9"}'])
  sockets[0]?.says('1:event: e\ndata: old\n\n')
  last().says('4:event: e\ndata: 2\n\n')
  expect(b.got).toEqual(['e 1', 'e 2'])
  expect(a.got).toEqual(['e 1'])
})

test('a silent connection is closed', async () => {
  const { sockets, follow, last } = play()
  const a = follow('/a')
  last().opens()
  await vi.advanceTimersByTimeAsync(10_000)
  last().says('{}')
  expect(a.phase()).toBe('live')
  await vi.advanceTimersByTimeAsync(14_000)
  expect(last().closed).toBe(false)
  await vi.advanceTimersByTimeAsync(1000)
  expect(sockets[0]?.closed).toBe(true)
  expect(a.states.at(-1)).toMatchObject({ phase: 'waiting', reason: 'nothing heard for 15 s' })
})

test('the sign-in is renewed before the next connection', async () => {
  const renewed = vi.fn(() => Promise.resolve())
  const { sockets, follow, last } = play(renewed)
  follow('/a')
  last().opens()
  last().says('{"id":1,"status":401,"message":"unauthorized"}')
  expect(sockets[0]?.closed).toBe(true)
  await vi.advanceTimersByTimeAsync(1000)
  expect(renewed).toHaveBeenCalledOnce()
  expect(sockets.length).toBe(2)
})

test('a backend that cannot be reached is tried again', async () => {
  let down = true
  const { sockets, follow, last } = play(() => (down ? Promise.reject(new Error('no way')) : Promise.resolve()))
  const a = follow('/a')
  last().drops()
  await vi.advanceTimersByTimeAsync(1000)
  expect(sockets.length).toBe(1)
  expect(a.states.at(-1)).toMatchObject({ phase: 'waiting', reason: 'no way' })
  down = false
  await vi.advanceTimersByTimeAsync(1000)
  expect(sockets.length).toBe(2)
})

test('a refused stream says why, and one that ends is opened again', async () => {
  const { follow, last } = play()
  const a = follow('/a')
  const b = follow('/b')
  last().opens()
  last().says('{"id":1,"status":403,"message":"you may not"}')
  last().says('{"id":2,"status":200}')
  expect(a.states.at(-1)).toEqual({ phase: 'denied', reason: 'you may not', status: 403 })
  expect(b.phase()).toBe('waiting')
  await vi.advanceTimersByTimeAsync(1000)
  expect(last().sent.slice(2)).toEqual(['{"open":3,"path":"/b"}'])
})

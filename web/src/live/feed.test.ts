import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { RowData } from './event'
import { Feed, type Port } from './feed'
import type { Batch, FromWorker, ToWorker } from './protocol'

function row(name: string, status = 0): RowData {
  return { key: `n\0${name}\0c`, status, output: '', occurrences: 1, silenced: false, seen: 1, history: '' }
}

function setup(token: (stale?: string) => Promise<string | undefined> = async () => 'token') {
  const sent: ToWorker[] = []
  const frames: (() => void)[] = []
  const port: Port = { postMessage: (m) => sent.push(m), onmessage: null, terminate: vi.fn() }
  const feed = new Feed({ namespace: 'n', session: { token }, port, frame: (f) => frames.push(f) })
  const receive = (data: FromWorker) => port.onmessage?.({ data } as MessageEvent<FromWorker>)
  const batch = (rows: RowData[], more: Partial<Batch> = {}) =>
    receive({
      kind: 'batch',
      batch: { epoch: 1, rows, deleted: [], watched: undefined, synced: false, received: Date.now(), ...more },
    })
  const draw = () => frames.splice(0).forEach((frame) => frame())
  const shown = () => feed.store.view.map((r) => r.entity)
  return { feed, port, sent, frames, receive, batch, draw, shown }
}

describe('Feed', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  test('draws once a frame and acknowledges after it', () => {
    const t = setup()
    const listener = vi.fn()
    t.feed.subscribe(listener)
    t.batch([row('a')])
    t.receive({ kind: 'state', state: { phase: 'live' } })
    expect(t.frames).toHaveLength(1)
    expect(t.sent).toEqual([{ kind: 'open', namespace: 'n' }])
    t.draw()
    expect(listener).toHaveBeenCalledTimes(1)
    expect(t.sent.at(-1)).toEqual({ kind: 'ack' })
    expect(t.shown()).toEqual(['a'])
  })

  test('while the user reads, rows keep their places and show their changes', () => {
    const t = setup()
    t.batch([row('a'), row('b')], { synced: true })
    t.draw()
    let held = true
    t.feed.held = () => held
    vi.advanceTimersByTime(1000)
    t.batch([row('b', 2), row('c')])
    t.draw()
    expect(t.shown()).toEqual(['a', 'b'])
    expect(t.feed.store.view[1]?.status).toBe(2)
    expect(t.feed.store.misplaced).toBe(2)
    expect(t.feed.holding).toBe(true)
    held = false
    vi.advanceTimersByTime(500)
    t.draw()
    expect(t.shown()).toEqual(['b', 'a', 'c'])
  })

  test('the first load shows even under the pointer', () => {
    const t = setup()
    t.feed.held = () => true
    t.batch([row('a')])
    t.draw()
    expect(t.shown()).toEqual(['a'])
  })

  test('the last rows of the first load are not held back', () => {
    const t = setup()
    t.feed.held = () => true
    t.batch([row('a')])
    t.draw()
    t.batch([row('b')], { synced: true }) // too soon to reorder again
    t.draw()
    vi.advanceTimersByTime(250)
    t.draw()
    expect(t.shown()).toEqual(['a', 'b'])
  })

  test('reorders at a readable pace', () => {
    const t = setup()
    t.batch([row('a')], { synced: true })
    t.draw()
    t.batch([row('b')])
    t.draw()
    expect(t.shown()).toEqual(['a'])
    expect(t.feed.holding).toBe(false)
    vi.advanceTimersByTime(250)
    t.draw()
    expect(t.shown()).toEqual(['a', 'b'])
  })

  test('reorder() does not wait', () => {
    const t = setup()
    t.batch([row('a')], { synced: true })
    t.draw()
    t.feed.held = () => true
    t.batch([row('b')])
    t.feed.reorder()
    expect(t.shown()).toEqual(['a', 'b'])
  })

  test('answers for tokens, and keeps trying while the backend is away', async () => {
    const token = vi.fn(async (_stale?: string): Promise<string | undefined> => 'new')
    token.mockRejectedValueOnce(new TypeError('away'))
    const t = setup(token)
    t.receive({ kind: 'token', stale: 'old' })
    await vi.advanceTimersByTimeAsync(0)
    expect(t.feed.stream).toMatchObject({ phase: 'waiting', reason: 'away' })
    await vi.advanceTimersByTimeAsync(3000)
    expect(token.mock.calls).toEqual([['old'], ['old']])
    expect(t.sent.at(-1)).toEqual({ kind: 'token', token: 'new' })
  })

  test('keeps the watched event until another is watched', () => {
    const t = setup()
    t.feed.watch('n\0a\0c')
    const event = { check: { metadata: { name: 'c' } } }
    t.batch([row('a')], { watched: event })
    t.batch([row('b')])
    expect(t.feed.watched).toEqual({ key: 'n\0a\0c', event })
    t.feed.watch('n\0b\0c')
    expect(t.feed.watched).toBeUndefined()
  })

  test('close ends the worker and draws no more', () => {
    const t = setup()
    const listener = vi.fn()
    t.feed.subscribe(listener)
    t.batch([row('a')])
    t.feed.close()
    t.draw()
    expect(listener).not.toHaveBeenCalled()
    expect(t.port.terminate).toHaveBeenCalled()
  })
})

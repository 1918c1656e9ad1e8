import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Batcher } from './batcher'
import type { SensuEvent } from '../api/types'
import type { Batch } from './protocol'

function event(check: string, status = 0): SensuEvent {
  return { entity: { metadata: { name: 'e', namespace: 'n' } }, check: { metadata: { name: check }, status } }
}
const key = (check: string) => `n\0e\0${check}`

describe('Batcher', () => {
  let sent: Batch[]
  let batcher: Batcher
  beforeEach(() => {
    vi.useFakeTimers()
    sent = []
    batcher = new Batcher((batch) => sent.push(batch), 50)
    batcher.begin()
  })
  afterEach(() => vi.useRealTimers())

  test('sends one lonely event', () => {
    batcher.event(event('a'))
    expect(sent).toHaveLength(0)
    vi.advanceTimersByTime(50)
    expect(sent).toHaveLength(1)
    expect(sent[0]?.rows.map((row) => row.key)).toEqual([key('a')])
  })

  test('sends a lonely delete and a lonely synced', () => {
    batcher.remove({ namespace: 'n', entity: 'e', check: 'a' })
    vi.advanceTimersByTime(50)
    batcher.ack()
    batcher.sync()
    vi.advanceTimersByTime(50)
    expect(sent).toMatchObject([
      { rows: [], deleted: [key('a')], synced: false },
      { rows: [], deleted: [], synced: true },
    ])
  })

  test('sends the last state of a key once', () => {
    batcher.event(event('a', 1))
    batcher.event(event('b'))
    batcher.event(event('a', 2))
    batcher.remove({ namespace: 'n', entity: 'e', check: 'b' })
    vi.advanceTimersByTime(50)
    expect(sent[0]?.rows).toMatchObject([{ key: key('a'), status: 2 }])
    expect(sent[0]?.deleted).toEqual([key('b')])
  })

  test('waits for the page, and says since when', () => {
    vi.setSystemTime(1000)
    batcher.event(event('a'))
    vi.advanceTimersByTime(50)
    vi.setSystemTime(2000)
    batcher.event(event('b'))
    vi.setSystemTime(5000)
    batcher.event(event('c'))
    vi.advanceTimersByTime(10_000)
    expect(sent).toHaveLength(1)
    batcher.ack()
    vi.advanceTimersByTime(50)
    expect(sent).toHaveLength(2)
    expect(sent[1]?.rows).toHaveLength(2)
    expect(sent[1]?.received).toBe(2000)
  })

  test('sends the full form of the watched event only', () => {
    batcher.watch = key('a')
    batcher.event(event('a'))
    batcher.event(event('b'))
    vi.advanceTimersByTime(50)
    expect(sent[0]?.watched?.check?.metadata?.name).toBe('a')
    batcher.ack()
    batcher.event(event('b'))
    vi.advanceTimersByTime(50)
    expect(sent[1]?.watched).toBeUndefined()
  })

  test('a new connection drops what the old one left', () => {
    batcher.event(event('old'))
    batcher.begin()
    batcher.event(event('new'))
    vi.advanceTimersByTime(50)
    expect(sent).toMatchObject([{ epoch: 2, rows: [{ key: key('new') }] }])
  })
})

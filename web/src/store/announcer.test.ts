import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Announcer } from './announcer'
import { Row } from './row'
import type { Transition } from './store'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function transition(to: Transition['to'], status = 2): Transition {
  const row = new Row('n\0web1\0http', (s) => s)
  row.status = status
  return { row, to }
}

test('one change is told by name, many by number, and not more often than the interval', () => {
  const said: string[] = []
  const announcer = new Announcer((s) => said.push(s), 5000)
  announcer.add(transition('incident'))
  vi.advanceTimersByTime(400)
  expect(said).toEqual(['http on web1 is Critical.'])
  for (let i = 0; i < 1000; i++) announcer.add(transition('incident'))
  announcer.add(transition('resolved', 0))
  vi.advanceTimersByTime(4999)
  expect(said).toHaveLength(1)
  vi.advanceTimersByTime(1)
  expect(said[1]).toBe('1,000 new incidents, 1 resolved.')
  vi.advanceTimersByTime(60_000)
  expect(said).toHaveLength(2)
  announcer.add(transition('resolved', 0))
  vi.advanceTimersByTime(400)
  expect(said[2]).toBe('http on web1 is OK.')
  announcer.close()
})

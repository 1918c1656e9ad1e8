import { expect, test } from 'vitest'
import { Backoff } from './backoff'

test('doubles up to the limit, within half of it, and starts over', () => {
  const low = new Backoff(500, 15_000, () => 0)
  const high = new Backoff(500, 15_000, () => 1)
  expect(Array.from({ length: 7 }, () => low.next())).toEqual([250, 500, 1000, 2000, 4000, 7500, 7500])
  expect(Array.from({ length: 7 }, () => high.next())).toEqual([500, 1000, 2000, 4000, 8000, 15_000, 15_000])
  high.reset()
  expect(high.next()).toBe(500)
})

import { expect, test } from 'vitest'
import { rateOf, withSample, type Sample } from './rate'
import type { ClusterStatus, MemberStatus } from './types'

/** A cluster of members with what they have received; those that are not up have a minus. */
const status = (received: Record<string, number>) =>
  ({
    members: Object.entries(received).map(([id, n]) => ({ id, up: n >= 0, received: Math.abs(n) }) as MemberStatus),
  }) as ClusterStatus

const after = (...all: [at: number, received: Record<string, number>][]) =>
  rateOf(all.reduce<readonly Sample[]>((samples, [at, received]) => withSample(samples, status(received), at * 1000), []))

test('the rate is of all members, over half a minute', () => {
  expect(after()).toBeUndefined()
  expect(after([0, { a: 100 }])).toBeUndefined()
  expect(after([0, { a: 100, b: 5 }], [5, { a: 600, b: 505 }])).toBe(200)
  expect(after([0, { a: 0 }], [20, { a: 20 }], [45, { a: 520 }])).toBe(20)
  expect(after([0, { a: 0 }], [100, { a: 1000 }])).toBe(10)
  expect(after([0, { a: 7 }], [5, { a: 7 }])).toBe(0)
})

test('it begins anew with the members', () => {
  expect(after([0, { a: 900 }], [5, { a: 20 }])).toBeUndefined()
  expect(after([0, { a: 900 }], [5, { a: 20 }], [10, { a: 70 }])).toBe(10)
  expect(after([0, { a: 10 }], [5, { a: 20, b: 5000 }])).toBeUndefined()
  expect(after([0, { a: 10, b: 5 }], [5, { a: 20, b: -5 }])).toBeUndefined()
})

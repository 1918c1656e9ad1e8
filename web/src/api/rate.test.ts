import { expect, test } from 'vitest'
import { rateOf, withSample, type Sample } from './rate'
import type { ClusterStatus, MemberStatus } from './types'

const member = (id: string, received: number | undefined, started = 1, up = true) => ({ id, started, up, received }) as MemberStatus

/** The rate after answers at some seconds. */
const after = (...answers: [at: number, ...members: MemberStatus[]][]) =>
  rateOf(answers.reduce<readonly Sample[]>((samples, [at, ...members]) => withSample(samples, { members } as ClusterStatus, at * 1000), []))

test('the rate is of all members, over half a minute', () => {
  expect(after()).toBeUndefined()
  expect(after([0, member('a', 100)])).toBeUndefined()
  expect(after([0, member('a', 100), member('b', 5)], [5, member('a', 600), member('b', 505)])).toBe(200)
  expect(after([0, member('a', 1)], [20, member('a', 20)], [45, member('a', 520)])).toBe(20)
  expect(after([0, member('a', 1)], [100, member('a', 1001)])).toBe(10)
  expect(after([0, member('a', 7)], [5, member('a', 7)])).toBe(0)
  expect(after([0, member('a', 7)], [0.2, member('a', 70)])).toBeUndefined()
})

test('it starts again when the members change', () => {
  expect(after([0, member('a', 10, 1)], [5, member('a', 20, 2)])).toBeUndefined()
  expect(after([0, member('a', 900, 1)], [5, member('a', 20, 2)], [10, member('a', 70, 2)])).toBe(10)
  expect(after([0, member('a', 10)], [5, member('a', 20), member('b', 5000)])).toBeUndefined()
  expect(after([0, member('a', 10), member('b', 5)], [5, member('a', 20), member('b', 5, 1, false)])).toBeUndefined()
})

test('there is none while a member does not tell', () => {
  expect(after([0, member('a', 10), member('b', undefined)], [5, member('a', 20), member('b', undefined)])).toBeUndefined()
})

import { expect, test } from 'vitest'
import type { MemberStatus } from '../../api/types'
import { clusterText } from '../../text/cluster'
import { stateOf, sum } from './present'

const member = { up: true, ready: true, leased: true } as MemberStatus

test.each<[Partial<MemberStatus>, string, string]>([
  [{}, 'ok', 'Ready'],
  [{ up: false, away_seconds: 90 }, 'critical', 'Not heard for 1 m 30 s'],
  [{ leased: false, draining: true }, 'critical', 'Hears no majority'],
  [{ ready: false }, 'warning', 'Reads the log'],
  [{ draining: true }, 'warning', 'Draining'],
  [{ leaving: true, draining: true }, 'warning', 'Stops'],
])('the state of %j', (part, mark, word) => {
  expect(stateOf({ ...member, ...part })).toEqual({ mark, word })
})

test('numbers', () => {
  expect(sum(null)).toBe(0)
  expect(sum([1, 2])).toBe(3)
  expect(clusterText.size(0)).toBe('0 B')
  expect(clusterText.size(1536)).toBe('1.5 KiB')
  expect(clusterText.size(45087305728)).toBe('42.0 GiB')
})

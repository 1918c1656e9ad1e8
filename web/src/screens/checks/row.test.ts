import { expect, test } from 'vitest'
import { handledBy, lateness, matches, schedule, type CheckRow } from './row'
import { checksSearch } from './search'

const counts = { critical: 1, warning: 0, unknown: 0, silenced: 1, ok: 3, total: 5 }
const late = { namespace: 'default', check: 'disk', last_run: 100, overdue: 0, since: 0, without_agent: [], summary: '' }
const row = (part: Partial<CheckRow> = {}): CheckRow => ({
  key: 'default/disk',
  namespace: 'default',
  name: 'disk',
  late,
  counts,
  check: { command: 'check-disk -w 80', interval: 60, publish: true, subscriptions: ['linux'], handlers: ['slack'] },
  ...part,
})

test('the state in the address', () => {
  expect(checksSearch({ ns: 'a', q: '7', check: 'a/b', other: 'x', sort: '' })).toEqual({ ns: 'a', q: '7', check: 'a/b' })
})

test.each<[string, string | undefined, Partial<CheckRow>, boolean]>([
  ['', undefined, {}, true],
  ['DISK linux', undefined, {}, true],
  ['slack', undefined, {}, true],
  ['disk windows', undefined, {}, false],
  ['', 'failing', {}, true],
  ['', 'failing', { counts: undefined }, false],
  ['', 'late', {}, false],
  ['', 'late', { late: { ...late, overdue: 2 } }, true],
  ['', 'late', { late: { ...late, without_agent: ['linux'] } }, true],
  ['', 'off', {}, false],
  ['', 'off', { check: { publish: false } }, true],
])('%j in state %s', (q, state, part, want) => {
  expect(matches(row(part), q, state)).toBe(want)
})

test('words', () => {
  expect(schedule({ interval: 60 })).toBe('every 1 m')
  expect(schedule({ interval: 60, cron: '* * * * *' })).toBe('* * * * *')
  expect(schedule({})).toBe('never by itself')
  expect(lateness(undefined)).toBe('–')
  expect(lateness(late)).toBe('on time')
  expect(lateness({ ...late, overdue: 1 })).toBe('1 run missing')
  expect(lateness({ ...late, last_run: 0 })).toBe('never')
  expect(handledBy({ handlers: ['a'], pipelines: [{ name: 'p', type: 'Pipeline', api_version: 'core/v2' }] })).toEqual(['a', 'p'])
})

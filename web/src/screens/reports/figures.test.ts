import { expect, test } from 'vitest'
import type { StateReportRow } from '../../api/types'
import { lengthOf, nameOf, statesOf } from './figures'

const row = (part: Partial<StateReportRow>) =>
  ({ ok_ms: 0, warning_ms: 0, critical_ms: 0, unknown_ms: 0, missing_ms: 0, no_data_ms: 0, ...part }) as StateReportRow

test('statesOf makes up the whole time', () =>
  expect(statesOf(row({ ok_ms: 50, critical_ms: 20, missing_ms: 5, no_data_ms: 25 }))).toEqual([
    { mark: 'ok', width: 50 },
    { mark: 'critical', width: 20 },
    { mark: 'unknown', width: 5 },
    { mark: 'none', width: 25 },
  ]))
test('statesOf of no time', () => expect(statesOf(row({}))).toEqual([]))
test('lengthOf is what the report is about', () => {
  const noisy = row({ changes: 7, incidents: 3, flapping_ms: 9 })
  expect((['response', 'noisiest', 'flapping', 'incidents'] as const).map((kind) => lengthOf(kind, noisy))).toEqual([3, 7, 9, 0])
})
test('nameOf a row of an entity, a check or both', () =>
  expect([row({ entity: 'a', check: 'b' }), row({ entity: 'a' }), row({ check: 'b' }), row({ label: '' })].map(nameOf)).toEqual([
    'a/b',
    'a',
    'b',
    '',
  ]))

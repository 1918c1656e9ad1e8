import { expect, test } from 'vitest'
import type { Waiting } from '../../api/types'
import { depthOf, handlerRows, stateOf } from './present'
import { queuesSearch, splitKey } from './search'

const counts = (total: number) => ({ total, change: 0, failing: total, unchanged: 0, metrics: 0 })
const waiting = (handler: string, part: Partial<Waiting> = {}): Waiting => ({
  namespace: 'n',
  handler,
  memory: counts(1),
  disk: counts(2),
  parked: counts(3),
  shed: counts(0),
  retrying: 0,
  running: 0,
  ...part,
})
const letter = (handler: string) => ({
  id: '1',
  namespace: 'n',
  handler,
  entity: 'e',
  check: 'c',
  status: 2,
  reason: '',
  attempts: 1,
  first: 1,
  last: 1,
})

test('handlers that need a look come first, also deleted ones', () => {
  const rows = handlerRows(
    [{ metadata: { namespace: 'n', name: 'b' } }, { metadata: { namespace: 'n', name: 'a' } }, { metadata: { namespace: 'm', name: 'a' } }],
    [waiting('b', { failing_since: 5 }), waiting('x')],
    [letter('gone'), letter('gone')],
  )
  expect(rows.map(({ namespace, name }) => `${namespace}/${name}`)).toEqual(['n/b', 'n/gone', 'n/x', 'n/a', 'm/a'])
  expect(rows[1]?.letters).toBe(2)
})

test('the state of a handler', () => {
  expect(depthOf(waiting('a'))).toBe(6)
  expect([undefined, waiting('a'), waiting('a', { retrying: 1 }), waiting('a', { retrying: 1, failing_since: 1 })].map(stateOf)).toEqual([
    'idle',
    'running',
    'waiting',
    'failing',
  ])
})

test('what the address says', () => {
  expect(queuesSearch({ tab: 'letters', letter: 'n/1-2.h', x: 1 })).toEqual({ tab: 'letters', letter: 'n/1-2.h' })
  expect(queuesSearch({ tab: 'other' })).toEqual({})
  expect(splitKey('n/check/sub/part')).toEqual({ namespace: 'n', rest: 'check/sub/part' })
})

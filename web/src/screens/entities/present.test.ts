import { describe, expect, test } from 'vitest'
import type { EntityGroup } from '../../api/types'
import { gapsOf, newerFirst, skewOf } from './present'

const change = (at: number, status: number, state = status === 0 ? 'passing' : 'failing') => ({
  time: new Date(at * 1000).toISOString(),
  status,
  state,
})

describe('gaps of keepalives', () => {
  test.each([
    ['none', [], []],
    ['always heard of', [change(100, 0)], []],
    ['over', [change(200, 0), change(100, 1)], [{ from: 100, until: 200 }]],
    ['late, then gone', [change(300, 0), change(200, 2), change(100, 1), change(50, 0)], [{ from: 100, until: 300 }]],
    ['going on', [change(200, 2), change(100, 1)], [{ from: 100, until: undefined }]],
    [
      'two',
      [change(400, 1), change(300, 0), change(200, 1), change(100, 0)],
      [
        { from: 400, until: undefined },
        { from: 200, until: 300 },
      ],
    ],
    ['deleted', [change(300, 0), change(200, 2, 'deleted'), change(100, 2)], [{ from: 100, until: 200 }]],
  ])('%s', (_, changes, want) => expect(gapsOf(changes)).toEqual(want))
})

const group = (value: string, total: number): EntityGroup => ({ value, counts: { total, connected: total, late: 0, gone: 0, proxy: 0 } })

test('versions of agents', () => {
  const groups = [group('6.9.2', 1), group('', 5), group('6.12.0', 2), group('v6.11.1', 1)]
  expect([...groups].sort(newerFirst).map(({ value }) => value)).toEqual(['6.12.0', 'v6.11.1', '6.9.2', ''])
  expect(skewOf(groups)).toEqual({ newest: '6.12.0', versions: 3, share: 50 })
  expect(skewOf([group('', 5)])).toBeUndefined()
})

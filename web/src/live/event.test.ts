import { describe, expect, test } from 'vitest'
import type { SensuEvent } from '../api/types'
import { firstLine, keyOf, maxHistory, maxOutput, refOf, toRow } from './event'

const event: SensuEvent = {
  timestamp: 1700000100,
  entity: { metadata: { name: 'web1', namespace: 'default' } },
  check: {
    metadata: { name: 'http', namespace: 'default' },
    status: 2,
    output: 'CRIT\nmore',
    occurrences: 3,
    executed: 1700000099,
    is_silenced: false,
    history: [
      { status: 0, executed: 1 },
      { status: 127, executed: 2 },
      { status: 2, executed: 3 },
    ],
  },
}

describe('toRow', () => {
  test('keeps what the list shows', () => {
    expect(toRow(event)).toEqual({
      key: 'default\0web1\0http',
      status: 2,
      output: 'CRIT',
      occurrences: 3,
      silenced: false,
      seen: 1700000100,
      history: '032',
    })
  })

  test('an event of the first kind there is: fields absent or null', () => {
    const row = toRow({ entity: { metadata: { name: 'e', namespace: 'n' } }, check: { metadata: { name: 'c' }, history: null } })
    expect(row).toEqual({ key: 'n\0e\0c', status: 0, output: '', occurrences: 0, silenced: false, seen: 0, history: '' })
  })

  test('metrics without a check are no row', () => {
    expect(toRow({ entity: event.entity ?? null })).toBeUndefined()
    expect(toRow({ entity: event.entity ?? null, check: null })).toBeUndefined()
  })

  test('silenced by flag or by names', () => {
    const check = { metadata: { name: 'c' } }
    const entity = { metadata: { name: 'e' } }
    expect(toRow({ entity, check: { ...check, is_silenced: true } })?.silenced).toBe(true)
    expect(toRow({ entity, check: { ...check, silenced: ['*:c'] } })?.silenced).toBe(true)
    expect(toRow({ entity, check: { ...check, silenced: [] } })?.silenced).toBe(false)
  })

  test('keeps the newest of a long history', () => {
    const history = Array.from({ length: 30 }, (_, i) => ({ status: i < 29 ? 0 : 1, executed: i }))
    expect(toRow({ ...event, check: { metadata: { name: 'c' }, history } })?.history).toBe('0'.repeat(maxHistory - 1) + '1')
  })
})

test('keys order as their parts do and come apart again', () => {
  const refs = [
    ['a', 'z', 'z'],
    ['a-b', 'a', 'a'],
    ['a-b', 'a', 'b'],
    ['a-b', 'a-1', 'a'],
  ].map(([namespace = '', entity = '', check = '']) => ({ namespace, entity, check }))
  const keys = refs.map(keyOf)
  expect([...keys].reverse().sort()).toEqual(keys)
  expect(keys.map(refOf)).toEqual(refs)
})

describe('firstLine', () => {
  test.each([
    ['one line', 'one line'],
    ['first\nsecond', 'first'],
    ['first\r\nsecond', 'first'],
    ['\n\n  after blanks \nx', 'after blanks'],
    ['', ''],
    ['x'.repeat(maxOutput), 'x'.repeat(maxOutput)],
    ['x'.repeat(maxOutput + 1), 'x'.repeat(maxOutput - 1) + '…'],
    ['x'.repeat(maxOutput - 2) + '🐦🐦', 'x'.repeat(maxOutput - 2) + '…'],
  ])('%j', (output, want) => {
    expect(firstLine(output)).toBe(want)
  })
})

import { describe, expect, test } from 'vitest'
import type { StateChange } from '../../api/types'
import { partsOf } from './Timeline'

const change = (at: number, status: number, state = status === 0 ? 'passing' : 'failing'): StateChange => ({
  time: new Date(at * 1000).toISOString(),
  executed: at,
  status,
  state,
  silenced: false,
  missing: false,
  output: '',
})

describe('partsOf', () => {
  const show = (...args: Parameters<typeof partsOf>) =>
    partsOf(...args).map(({ begin, end, change: c }) => `${begin}-${end} ${c ? c.status : 'none'}`)
  test('without a history', () => expect(show([], undefined, 100, 200)).toEqual(['100-200 none']))
  test('with the state at the begin', () => expect(show([], change(50, 2), 100, 200)).toEqual(['100-200 2']))
  test('of changes, newest first', () =>
    expect(show([change(180, 0), change(150, 2)], change(10, 0), 100, 200)).toEqual(['100-150 0', '150-180 2', '180-200 0']))
  test('begins with a first event', () => expect(show([change(150, 1)], undefined, 100, 200)).toEqual(['100-150 none', '150-200 1']))
  test('of a deleted event', () =>
    expect(show([change(150, 1)], change(90, 2, 'deleted'), 100, 200)).toEqual(['100-150 none', '150-200 1']))
  test('of two changes in a second', () =>
    expect(show([change(150, 1), change(150, 2)], undefined, 100, 200)).toEqual(['100-150 none', '150-200 1']))
})

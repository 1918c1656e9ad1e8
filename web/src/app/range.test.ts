import { describe, expect, test } from 'vitest'
import { boundsOf, moved, parseRange, writeBounds } from './range'

describe('parseRange', () => {
  test.each([
    ['1h', { last: 3600 }],
    ['30d', { last: 2_592_000 }],
    ['100-200', { from: 100, until: 200 }],
    ['200-100', undefined],
    ['0h', undefined],
    ['1y', undefined],
    [undefined, undefined],
  ])('%s', (text, range) => expect(parseRange(text)).toEqual(range))
})

test('bounds end now, or where they are', () => {
  expect(boundsOf({ last: 60 }, 1000)).toEqual({ from: 940, until: 1000 })
  expect(boundsOf({ from: 1, until: 2 }, 1000)).toEqual({ from: 1, until: 2 })
})

test('two moments are a second apart', () => expect(writeBounds(10.2, 10.4)).toBe('10-11'))

describe('moved', () => {
  test('earlier', () => expect(moved({ last: 100 }, 'earlier', 1000)).toBe('850-950'))
  test('later, until now', () => expect(moved({ from: 880, until: 980 }, 'later', 1000)).toBe('900-1000'))
  test('closer', () => expect(moved({ from: 100, until: 200 }, 'closer', 1000)).toBe('125-175'))
})

import { describe, expect, test } from 'vitest'
import { align, figuresOf, parseSeries, shortValue } from './graphite'

const series = (...points: [number | null, number][]) => ({ target: 'a', tags: {}, points })

test('parseSeries reads an answer of render', () =>
  expect(
    parseSeries([
      {
        target: 'a;b=c',
        tags: { name: 'a', b: 'c' },
        datapoints: [
          [1.5, 10],
          [null, 20],
        ],
      },
    ]),
  ).toEqual([
    {
      target: 'a;b=c',
      tags: { name: 'a', b: 'c' },
      points: [
        [1.5, 10],
        [null, 20],
      ],
    },
  ]))

test('align keeps gaps, and lines that go on between the points of another series', () =>
  expect(align([series([1, 10], [null, 20], [3, 30]), series([5, 10], [6, 40])])).toEqual({
    times: [10, 20, 30, 40],
    values: [
      [1, null, 3, undefined],
      [5, undefined, undefined, 6],
    ],
  }))

describe('figuresOf', () => {
  test('leaves out gaps', () => expect(figuresOf(series([1, 10], [3, 20], [null, 30]))).toEqual({ min: 1, max: 3, mean: 2, last: 3 }))
  test('of no values', () => expect(figuresOf(series([null, 10]))).toBeUndefined())
})

test.each([
  [0, '0'],
  [0.042123, '0.04212'],
  [12.5, '12.5'],
  [4_123_456, '4.123M'],
  [0.00001, '1.00e-5'],
])('shortValue(%s) is %s', (value, word) => expect(shortValue(value)).toBe(word))

import { expect, test } from 'vitest'
import { cellAt, cellOf, layoutOf, moved, stepOf, visible } from './map-layout'

const group = (value: string, n: number) => ({
  value,
  namespace: 'default',
  names: Array.from({ length: n }, (_, i) => `${value}${i}`),
  worst: '4'.repeat(n),
})
// Ten cells a row: a has three rows, the last with 5 cells; b has one row with 3.
const layout = layoutOf([group('a', 25), group('b', 3)], 105, 10, true)

test('cells have a place, and a point has a cell', () => {
  expect(layout).toMatchObject({ columns: 10, total: 28 })
  expect(cellOf(layout, 0)).toMatchObject({ name: 'a0', worst: 4, x: 0, y: 26 })
  expect(cellOf(layout, 24)).toMatchObject({ name: 'a24', x: 40, y: 46 })
  expect(cellOf(layout, 25)).toMatchObject({ name: 'b0', x: 0, y: 92 })
  expect(cellOf(layout, 28)).toBeUndefined()
  for (let place = 0; place < 28; place++) {
    const cell = cellOf(layout, place)
    expect(cellAt(layout, (cell?.x ?? 0) + 5, (cell?.y ?? 0) + 5)?.place).toBe(place)
  }
  expect(cellAt(layout, 55, 51)).toBeUndefined() // behind the last cell of a
  expect(cellAt(layout, 5, 10)).toBeUndefined() // the title
  expect(cellAt(layout, 102, 30)).toBeUndefined()
})

test('only what is seen is drawn', () => {
  const names = (from: number, to: number) => visible(layout, from, to).map(({ group: { value } }) => value)
  expect(names(0, 30)).toEqual(['a'])
  expect(names(0, 200)).toEqual(['a', 'b'])
  expect(names(80, 200)).toEqual(['b'])
  expect(visible(layoutOf([], 100, 10, true), 0, 100)).toEqual([])
})

test.each([
  ['ArrowRight', 0, 1],
  ['ArrowLeft', 0, 0],
  ['ArrowRight', 27, 27],
  ['ArrowDown', 4, 14],
  ['ArrowDown', 18, 24],
  ['ArrowDown', 22, 27],
  ['ArrowDown', 26, 26],
  ['ArrowUp', 14, 4],
  ['ArrowUp', 26, 21],
  ['ArrowUp', 4, 4],
  ['Home', 14, 0],
  ['End', 14, 27],
  ['a', 14, 14],
])('%s from %i', (key, from, to) => {
  expect(moved(layout, from, key)).toBe(to)
})

test('40,000 entities get small cells, unless the user wants larger ones', () => {
  expect(stepOf(undefined, 40_000)).toBe(10)
  expect(stepOf('large', 40_000)).toBe(stepOf(undefined, 100))
})

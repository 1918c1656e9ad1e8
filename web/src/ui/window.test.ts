import { describe, expect, test } from 'vitest'
import { anchorAt, maxHeight, scrollToAnchor, scrollToShow, windowAt, type Geometry } from './window'

const small: Geometry = { count: 1000, rowHeight: 40, viewport: 400 }
const huge: Geometry = { count: 2_000_000, rowHeight: 40, viewport: 400 }

describe('a list that fits', () => {
  test('draws what is visible and a little more', () => {
    expect(windowAt(small, 0)).toEqual({ start: 0, end: 20, top: 0, height: 40_000 })
    expect(windowAt(small, 4000)).toEqual({ start: 90, end: 120, top: 3600, height: 40_000 })
    expect(windowAt(small, 39_600)).toEqual({ start: 980, end: 1000, top: 39_200, height: 40_000 })
  })

  test('survives a scroll position that is no more', () => {
    expect(windowAt({ ...small, count: 5 }, 9000)).toEqual({ start: 0, end: 5, top: 0, height: 200 })
    expect(windowAt({ ...small, count: 0 }, 50)).toEqual({ start: 0, end: 0, top: 0, height: 0 })
  })

  test('shows a row with the least scrolling', () => {
    expect(scrollToShow(small, 5, 0)).toBe(0)
    expect(scrollToShow(small, 10, 0)).toBe(40)
    expect(scrollToShow(small, 5, 4000)).toBe(200)
  })

  test('an anchor is where it was', () => {
    expect(anchorAt(small, 4015)).toEqual({ index: 100, offset: 15 })
    expect(scrollToAnchor(small, 103, 15)).toBe(4135)
  })
})

describe('a list that is higher than browsers can', () => {
  test('reaches its last row', () => {
    const limit = maxHeight - huge.viewport
    const end = windowAt(huge, limit)
    expect(end.end).toBe(huge.count)
    expect(end.height).toBe(maxHeight)
    // The last row's lower edge is the viewport's.
    expect(end.top + (end.end - end.start) * huge.rowHeight).toBeCloseTo(maxHeight)
  })

  test('rows in the window are where the viewport is', () => {
    for (const at of [0, 1, 12_345, 7_000_000, maxHeight - huge.viewport]) {
      const { index, offset } = anchorAt(huge, at)
      const w = windowAt(huge, at)
      expect(w.top + (index - w.start) * huge.rowHeight + offset).toBeCloseTo(at, 3)
      expect(scrollToAnchor(huge, index, offset)).toBeCloseTo(at, 3)
    }
  })

  test('shows any row', () => {
    for (const index of [0, 1, 999_999, huge.count - 1]) {
      const at = scrollToShow(huge, index, 5_000_000)
      const first = anchorAt(huge, at)
      expect(index).toBeGreaterThanOrEqual(first.offset > 0.01 ? first.index + 1 : first.index)
      expect((index + 1) * huge.rowHeight).toBeLessThanOrEqual(first.index * huge.rowHeight + first.offset + huge.viewport + 0.01)
    }
  })
})

/**
 * Which rows of a long list are drawn, and where. All rows have one height, so this is arithmetic: its cost does not
 * depend on the number of rows, and a row more or less costs nothing.
 */
export interface Geometry {
  count: number
  rowHeight: number
  /** Height in which rows are visible. */
  viewport: number
}

/** Browsers stop at some element height (Firefox near 17.8 million pixels); beyond, scrolling is scaled. */
export const maxHeight = 15_000_000

const overscan = 10

export interface Window {
  start: number
  end: number
  /** Where the first drawn row goes, in the scrolled element. */
  top: number
  /** Height of the scrolled element. */
  height: number
}

/** Pixels of list per pixel of scrolling. */
function scale(g: Geometry): number {
  const total = g.count * g.rowHeight
  if (total <= maxHeight) return 1
  return (total - g.viewport) / (maxHeight - g.viewport)
}

export function windowAt(g: Geometry, scrollTop: number): Window {
  const height = Math.min(g.count * g.rowHeight, maxHeight)
  const limit = Math.max(0, height - g.viewport)
  const at = Math.min(Math.max(0, scrollTop), limit)
  const y = at * scale(g)
  const start = Math.max(0, Math.floor(y / g.rowHeight) - overscan)
  const end = Math.min(g.count, Math.ceil((y + g.viewport) / g.rowHeight) + overscan)
  return { start, end, top: start * g.rowHeight - y + at, height }
}

/** The row at the top edge, and how far the edge is into it. */
export function anchorAt(g: Geometry, scrollTop: number): { index: number; offset: number } {
  const y = scrollTop * scale(g)
  const index = Math.floor(y / g.rowHeight)
  return { index, offset: y - index * g.rowHeight }
}

/** The scroll position that brings a row to the top edge, `offset` pixels into it. */
export function scrollToAnchor(g: Geometry, index: number, offset: number): number {
  return (index * g.rowHeight + offset) / scale(g)
}

/** The nearest scroll position at which a row is wholly visible. */
export function scrollToShow(g: Geometry, index: number, scrollTop: number): number {
  const k = scale(g)
  const y = scrollTop * k
  const top = index * g.rowHeight
  if (top < y) return top / k
  if (top + g.rowHeight > y + g.viewport) return (top + g.rowHeight - g.viewport) / k
  return scrollTop
}

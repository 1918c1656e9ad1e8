import type { EntityMap } from '../../api/types'

type Group = NonNullable<EntityMap['groups']>[number]

/** A group of the map: a title, and rows of cells below it. */
export interface Band {
  group: Group
  /** Place of its first cell among all. */
  first: number
  /** Where its title begins, and where its cells do, in px. */
  top: number
  cells: number
  bottom: number
}

export interface Layout {
  bands: readonly Band[]
  /** Cells in a row, and the px from one to the next. */
  columns: number
  step: number
  total: number
  height: number
}

/** Px of a group's title, and below a group. */
const title = 26
const below = 10

export function layoutOf(groups: readonly Group[], width: number, step: number, titled: boolean): Layout {
  const columns = Math.max(1, Math.floor(width / step))
  const bands: Band[] = []
  let top = 0
  let first = 0
  for (const group of groups) {
    const n = group.names?.length ?? 0
    const cells = top + (titled ? title : 0)
    const bottom = cells + Math.ceil(n / columns) * step + below
    bands.push({ group, first, top, cells, bottom })
    top = bottom
    first += n
  }
  return { bands, columns, step, total: first, height: top }
}

/** The last of the bands that begins at or before a value, by what of returns. */
function lastAt(bands: readonly Band[], value: number, of: (band: Band) => number): number {
  let low = 0
  let high = bands.length - 1
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (of(bands[middle] as Band) <= value) low = middle
    else high = middle - 1
  }
  return low
}

/** The bands that are in a part of the height. */
export function visible({ bands }: Layout, from: number, to: number): readonly Band[] {
  if (bands.length === 0) return []
  return bands.slice(
    lastAt(bands, from, ({ top }) => top),
    lastAt(bands, to, ({ top }) => top) + 1,
  )
}

/** A cell: which entity, and where. */
export interface Cell {
  place: number
  namespace: string
  name: string
  /** Place in classes; undefined for users who may not see events. */
  worst: number | undefined
  x: number
  y: number
}

export function cellOf({ bands, columns, step, total }: Layout, place: number): Cell | undefined {
  if (place < 0 || place >= total) return undefined
  // The last one that begins there: those before it are empty.
  const band = bands[lastAt(bands, place, ({ first }) => first)] as Band
  const at = place - band.first
  const digit = band.group.worst?.[at]
  return {
    place,
    namespace: band.group.namespace,
    name: band.group.names?.[at] ?? '',
    worst: digit === undefined ? undefined : Number(digit),
    x: (at % columns) * step,
    y: band.cells + Math.floor(at / columns) * step,
  }
}

/** The cell at a point. */
export function cellAt(layout: Layout, x: number, y: number): Cell | undefined {
  const { bands, columns, step } = layout
  const column = Math.floor(x / step)
  if (bands.length === 0 || x < 0 || column >= columns) return undefined
  const band = bands[lastAt(bands, y, ({ top }) => top)] as Band
  const at = Math.floor((y - band.cells) / step) * columns + column
  return y < band.cells || at >= (band.group.names?.length ?? 0) ? undefined : cellOf(layout, band.first + at)
}

/** The place that an arrow key goes to. */
export function moved(layout: Layout, place: number, key: string): number {
  const { bands, columns, total } = layout
  const last = total - 1
  const clamp = (to: number) => Math.max(0, Math.min(last, to))
  if (key === 'ArrowLeft') return clamp(place - 1)
  if (key === 'ArrowRight') return clamp(place + 1)
  if (key === 'Home') return 0
  if (key === 'End') return last
  if (key !== 'ArrowUp' && key !== 'ArrowDown') return place
  const index = lastAt(bands, place, ({ first }) => first)
  const band = bands[index] as Band
  const at = place - band.first
  const column = at % columns
  const n = band.group.names?.length ?? 0
  if (key === 'ArrowDown') {
    if (at + columns < n) return place + columns
    if (Math.floor(at / columns) < Math.floor((n - 1) / columns)) return band.first + n - 1
    const next = bands[index + 1]
    return next ? clamp(next.first + Math.min(column, (next.group.names?.length ?? 1) - 1)) : place
  }
  if (at >= columns) return place - columns
  const before = bands[index - 1]
  if (!before) return place
  const size = before.group.names?.length ?? 0
  const row = Math.floor((size - 1) / columns) * columns
  return clamp(before.first + Math.min(row + column, size - 1))
}

/** Px from one cell to the next for a number of entities, by the zoom in the address. */
export function stepOf(zoom: string | undefined, total: number): number {
  switch (zoom) {
    case 'small':
      return 10
    case 'medium':
      return 18
    case 'large':
      return 28
    default:
      return total <= 500 ? 28 : total <= 4000 ? 18 : 10
  }
}

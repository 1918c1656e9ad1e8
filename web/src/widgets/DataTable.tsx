import { Checkbox } from '@mantine/core'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useCallback, useEffect, useMemo, useState, type ReactNode } from 'react'
import { usePreferences } from '../app/preferences'
import { text } from '../text'
import css from './DataTable.module.css'
import { Icon } from './icons'
import { PickBox } from './PickBox'
import { useListKeys } from './use-list-keys'

export interface Column<Row> {
  id: string
  title: string
  /** Shown in the head in place of the title. */
  head?: ReactNode
  /** Of a grid: "120px", "2fr". Default 1fr. */
  width?: string
  cell: (row: Row) => ReactNode
  /** Orders two rows, or says that the server does; without it the column cannot be sorted by. */
  order?: ((a: Row, b: Row) => number) | 'server'
  /** Numbers stand at the right. */
  end?: boolean
  mono?: boolean
  /** Left out on a window narrower than 700 px. */
  wide?: boolean
}

/** Rows that the server keeps in order, of which some are loaded. */
export interface RowWindow<Row> {
  readonly length: number
  at: (place: number) => Row | undefined
  /** Asks for other rows. */
  show: (range: { offset: number; limit: number }) => void
}

interface Props<Row> {
  label: string
  columns: Column<Row>[]
  rows: readonly Row[] | RowWindow<Row>
  keyOf: (row: Row) => string
  /** Key of the row whose detail is open. */
  selected?: string | undefined
  /** Opens a row; undefined closes what is open. */
  onOpen?: (key: string | undefined) => void
  /** Id of the column to sort by, with a - before it for the reverse; undefined for the given order. */
  sort?: string | undefined
  onSort?: (sort: string | undefined) => void
  /** Keys of the rows that are ticked, or all that the server has. */
  picked?: ReadonlySet<string> | 'all'
  onPick?: (picked: ReadonlySet<string>) => void
  /** Shown in place of no rows. */
  empty: ReactNode
  /** Called with the element that scrolls. */
  onElement?: (element: HTMLDivElement | null) => void
}

/** Rows of a window that are asked for at once, and the steps of their first place: a scrolled row does not ask anew. */
const asked = 150
const stepOf = 50

/** A table of any number of rows, which draws those that are visible. j and k move, Enter opens, x ticks, Escape closes. */
export function DataTable<Row>(props: Props<Row>) {
  const { label, columns, rows, keyOf, selected, onOpen, sort, onSort, picked, onPick, empty, onElement } = props
  const { density } = usePreferences()
  const [element, setElement] = useState<HTMLDivElement | null>(null)
  const attach = useCallback(
    (now: HTMLDivElement | null) => {
      setElement(now)
      onElement?.(now)
    },
    [onElement],
  )
  const [cursor, setCursor] = useState(0)
  const window = isArray(rows) ? undefined : rows
  const given = useMemo(() => (isArray(rows) ? order(rows, columns, sort) : undefined), [rows, columns, sort])
  const length = given?.length ?? rows.length
  const rowAt = (place: number) => (given ? given[place] : window?.at(place))
  const height = density === 'compact' ? 30 : 40
  const virtual = useVirtualizer({ count: length, getScrollElement: () => element, estimateSize: () => height, overscan: 8 })
  useEffect(() => virtual.measure(), [virtual, height])

  const drawn = virtual.getVirtualItems()
  const offset = Math.max(0, Math.floor(((drawn[0]?.index ?? 0) - stepOf) / stepOf) * stepOf)
  useEffect(() => window?.show({ offset, limit: asked }), [window, offset])
  const at = Math.min(cursor, length - 1)
  const open = (place: number) => {
    const row = rowAt(place)
    if (row !== undefined) onOpen?.(keyOf(row))
  }
  const move = (by: number) => {
    const place = Math.max(0, Math.min(length - 1, at + by))
    setCursor(place)
    virtual.scrollToIndex(place)
    if (selected !== undefined) open(place)
  }
  const pick = (row: Row | undefined) => {
    if (!onPick || row === undefined) return
    const next = new Set(picked === 'all' ? [] : picked)
    const key = keyOf(row)
    if (!next.delete(key)) next.add(key)
    onPick(next)
  }
  useListKeys([
    ['j', () => move(1)],
    ['k', () => move(-1)],
    ['ArrowDown', () => move(1)],
    ['ArrowUp', () => move(-1)],
    ['Home', () => move(-length)],
    ['End', () => move(length)],
    ['Enter', () => open(at), { preventDefault: false }],
    ['x', () => pick(rowAt(at))],
    ['Escape', () => onOpen?.(undefined), { preventDefault: false }],
  ])

  if (length === 0) return <>{empty}</>
  const template = { gridTemplateColumns: [...(onPick ? ['28px'] : []), ...columns.map(({ width = 'minmax(0, 1fr)' }) => width)].join(' ') }
  const some = picked === 'all' || (picked?.size ?? 0) > 0
  const all = picked === 'all' || (some && (picked?.size ?? 0) >= length)
  /** All rows, or those of a window that are on the screen. */
  const pickAll = () => {
    if (picked === 'all') return onPick?.(new Set())
    const { startIndex = 0, endIndex = -1 } = virtual.range ?? {}
    const seen = Array.from({ length: endIndex - startIndex + 1 }, (_, i) => rowAt(startIndex + i)).filter((row) => row !== undefined)
    const keys = (given ?? seen).map(keyOf)
    onPick?.(keys.every((key) => picked?.has(key)) ? new Set() : new Set([...(picked ?? []), ...keys]))
  }
  return (
    <div className={css.frame}>
      <div
        ref={attach}
        className={css.table}
        role="grid"
        aria-label={label}
        aria-rowcount={length + 1}
        aria-colcount={columns.length + (onPick ? 1 : 0)}
        tabIndex={0}
      >
        <div className={css.head} role="row" aria-rowindex={1} style={template}>
          {onPick && (
            <span role="columnheader" data-pick="true">
              <Checkbox size="xs" aria-label={text.table.pickAll} checked={all} indeterminate={!all && some} onChange={pickAll} />
            </span>
          )}
          {columns.map((column) => (
            <Header key={column.id} column={column} sort={sort} onSort={onSort} />
          ))}
        </div>
        <div role="rowgroup" className={css.canvas} style={{ height: virtual.getTotalSize() }}>
          {drawn.map((item) => {
            const row = rowAt(item.index)
            if (row === undefined) return null
            const key = keyOf(row)
            return (
              <div
                key={key}
                role="row"
                aria-rowindex={item.index + 2}
                aria-selected={key === selected}
                className={css.row}
                data-cursor={item.index === at}
                data-opens={onOpen !== undefined}
                style={{ ...template, height, transform: `translateY(${item.start}px)` }}
                onClick={() => {
                  setCursor(item.index)
                  open(item.index)
                }}
              >
                {onPick && (
                  <span role="gridcell" data-pick="true" onClick={(event) => event.stopPropagation()}>
                    <PickBox
                      label={text.table.pick(key)}
                      picked={picked === 'all' || (picked?.has(key) ?? false)}
                      onPick={() => pick(row)}
                    />
                  </span>
                )}
                {columns.map((column) => (
                  <span key={column.id} role="gridcell" data-end={column.end} data-mono={column.mono} data-wide={column.wide}>
                    {column.cell(row)}
                  </span>
                ))}
              </div>
            )
          })}
        </div>
      </div>
    </div>
  )
}

function Header<Row>({ column, sort, onSort }: { column: Column<Row>; sort: string | undefined; onSort: Props<Row>['onSort'] }) {
  const { id, title, head, order, end, wide } = column
  const up = sort === id
  const down = sort === `-${id}`
  const by = up ? 'ascending' : down ? 'descending' : 'none'
  return (
    <span role="columnheader" data-end={end} data-wide={wide} {...(order && onSort ? { 'aria-sort': by } : {})}>
      {order && onSort ? (
        <button type="button" onClick={() => onSort(up ? `-${id}` : down ? undefined : id)}>
          {title}
          {(up || down) && <Icon name={up ? 'up' : 'down'} size={12} />}
        </button>
      ) : (
        (head ?? title)
      )}
    </span>
  )
}

function isArray<Row>(rows: readonly Row[] | RowWindow<Row>): rows is readonly Row[] {
  return Array.isArray(rows)
}

function order<Row>(rows: readonly Row[], columns: Column<Row>[], sort: string | undefined): readonly Row[] {
  if (sort === undefined) return rows
  const down = sort.startsWith('-')
  const compare = columns.find(({ id }) => id === (down ? sort.slice(1) : sort))?.order
  if (!compare || compare === 'server') return rows
  return [...rows].sort((a, b) => (down ? -compare(a, b) : compare(a, b)))
}

const collator = new Intl.Collator('en', { numeric: true })

/** Orders by a text of the row, with numbers inside it as numbers. */
export const byText =
  <Row,>(of: (row: Row) => string) =>
  (a: Row, b: Row) =>
    collator.compare(of(a), of(b))

export const byNumber =
  <Row,>(of: (row: Row) => number) =>
  (a: Row, b: Row) =>
    of(a) - of(b)

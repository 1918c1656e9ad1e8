import { useCallback, useEffect, useImperativeHandle, useLayoutEffect, useRef, useState, type Ref } from 'react'
import type { Feed } from '../live/feed'
import type { Row } from '../store/row'
import { text } from '../text'
import { EmptyState, NothingMatches, Skeleton } from './EmptyState'
import css from './EventList.module.css'
import { EventRow } from './EventRow'
import { Icon } from './icons'
import { useNow } from './use-feed'
import { anchorAt, scrollToAnchor, scrollToShow, windowAt, type Geometry } from './window'

export interface EventListHandle {
  focus: () => void
  /** Moves the cursor by some rows and returns the key of the row it is on now. */
  step: (by: number) => string | undefined
}

interface Props {
  ref: Ref<EventListHandle>
  feed: Feed
  openKey: string | undefined
  cursor: string | undefined
  /** A search or a status is chosen, so an empty list means that nothing matches. */
  filtered: boolean
  onCursor: (key: string) => void
  onOpen: (key: string) => void
  onClearFilter: () => void
}

// Below this width a row has two lines; the style sheet has the same number.
const cardWidth = 640
const cardHeight = 62
const rowHeight = 38
const headHeight = 32

// For so long after the pointer or a key moved in the list, its rows keep their places.
const readingFor = 6000

export function EventList({ ref, feed, openKey, cursor, filtered, onCursor, onOpen, onClearFilter }: Props) {
  const { store } = feed
  const { view } = store
  const now = useNow()
  const scroller = useRef<HTMLDivElement>(null)
  const [size, setSize] = useState({ width: 1000, height: 600 })
  const [scrollTop, setScrollTop] = useState(0)
  const touched = useRef(-Infinity)

  const cards = size.width < cardWidth
  const head = cards ? 0 : headHeight
  const geometry: Geometry = {
    count: view.length,
    rowHeight: cards ? cardHeight : rowHeight,
    viewport: Math.max(0, size.height - head),
  }
  const win = windowAt(geometry, scrollTop)

  useLayoutEffect(() => {
    const element = scroller.current
    if (!element) return
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }))
    observer.observe(element)
    return () => observer.disconnect()
  }, [])

  const touch = useCallback(() => {
    touched.current = performance.now()
  }, [])

  useEffect(() => {
    feed.held = () => (scroller.current?.scrollTop ?? 0) > 0 || performance.now() - touched.current < readingFor
    return () => {
      feed.held = () => false
    }
  }, [feed])

  // When rows come or go above, the row at the top edge stays where it is.
  const anchor = useRef<{ view: readonly Row[]; row: Row | undefined; offset: number }>({ view, row: undefined, offset: 0 })
  useLayoutEffect(() => {
    const element = scroller.current
    if (!element) return
    const last = anchor.current
    if (last.view !== view && last.row && element.scrollTop > 0) {
      element.scrollTop = scrollToAnchor(geometry, store.indexOf(last.row), last.offset)
    }
    const { index, offset } = anchorAt(geometry, element.scrollTop)
    anchor.current = { view, row: view[index], offset }
    setScrollTop(element.scrollTop)
  })

  // Another search is another list: begin at its top.
  const { viewOptions } = store
  useLayoutEffect(() => {
    if (scroller.current) scroller.current.scrollTop = 0
    anchor.current.row = undefined
  }, [viewOptions])

  const reveal = useCallback(
    (index: number) => {
      const element = scroller.current
      if (element) element.scrollTop = scrollToShow(geometry, index, element.scrollTop)
    },
    [geometry.count, geometry.rowHeight, geometry.viewport],
  )

  useImperativeHandle(ref, () => ({
    focus: () => scroller.current?.focus({ preventScroll: true }),
    step: (by) => {
      if (view.length === 0) return undefined
      touch()
      const row = cursor === undefined ? undefined : store.get(cursor)
      let index = row ? store.indexOf(row) + by : by < 0 ? 0 : by === Infinity ? Infinity : 0
      index = Math.min(Math.max(0, index), view.length - 1)
      const next = view[index]
      if (!next) return undefined
      reveal(index)
      onCursor(next.key)
      return next.key
    },
  }))

  const pointer = useRef({ x: 0, y: 0 })
  const rows = view.slice(win.start, win.end)
  const drawn = rows.some((row) => row.key === cursor)

  return (
    <div className={css.frame}>
      {feed.holding && store.misplaced > 0 && (
        <button
          className={css.pill}
          title={text.pendingHelp}
          onClick={() => {
            feed.reorder()
            scroller.current?.focus({ preventScroll: true })
          }}
        >
          <Icon name="refresh" size={14} />
          {text.pending(store.misplaced)}
        </button>
      )}
      <div
        ref={scroller}
        className={css.scroller}
        hidden={view.length === 0}
        role="grid"
        tabIndex={0}
        aria-label={text.events}
        aria-rowcount={store.synced ? view.length + 1 : -1}
        aria-busy={!store.synced}
        aria-activedescendant={drawn && cursor !== undefined ? rowId(cursor) : undefined}
        onScroll={(e) => setScrollTop(e.currentTarget.scrollTop)}
        onWheel={touch}
        onTouchMove={touch}
        onPointerMove={(e) => {
          // Browsers also report a pointer at rest when the page moves under it.
          if (e.clientX === pointer.current.x && e.clientY === pointer.current.y) return
          pointer.current = { x: e.clientX, y: e.clientY }
          touch()
        }}
        onClick={(e) => {
          const key = (e.target as HTMLElement).closest<HTMLElement>('[data-key]')?.dataset.key
          if (key === undefined || getSelection()?.isCollapsed === false) return
          onCursor(key)
          onOpen(key)
        }}
      >
        <div className={css.head} role="row" aria-rowindex={1}>
          {(['status', 'entity', 'check', 'output', 'history', 'occurrences', 'silenced', 'seen'] as const).map((name) => (
            <span
              key={name}
              role="columnheader"
              className={css[name]}
              title={name === 'occurrences' ? text.occurrencesHelp : undefined}
            >
              {text.columns[name]}
            </span>
          ))}
        </div>
        <div className={css.space} role="rowgroup" style={{ height: win.height }}>
          <div className={css.window} role="presentation" style={{ transform: `translateY(${win.top}px)` }}>
            {rows.map((row, i) => (
              <EventRow
                key={row.gone ? row.key + '\0gone' : row.key}
                id={rowId(row.key)}
                row={row}
                revision={row.revision}
                index={win.start + i}
                now={Math.floor(now / 1000)}
                namespace={feed.namespace === '-'}
                atCursor={row.key === cursor}
                open={row.key === openKey}
              />
            ))}
          </div>
        </div>
      </div>
      {view.length === 0 && (
        <div className={css.placeholder}>
          {!store.synced ? (
            <Skeleton stream={feed.stream} namespace={feed.namespace} />
          ) : filtered && store.size > 0 ? (
            <NothingMatches onClear={onClearFilter} />
          ) : store.size === 0 ? (
            <EmptyState namespace={feed.namespace} />
          ) : null}
        </div>
      )}
    </div>
  )
}

function rowId(key: string): string {
  return 'event-' + key.replaceAll('\0', '/')
}

import { Anchor, Button, Checkbox, Group, SegmentedControl, Select, Table } from '@mantine/core'
import { useCallbackRef, useElementSize } from '@mantine/hooks'
import { useVirtualizer } from '@tanstack/react-virtual'
import { getRouteApi } from '@tanstack/react-router'
import { useEffect, useState, type ReactNode } from 'react'
import { useAnnounce } from '../../app/announce'
import { everywhere } from '../../app/search'
import { usePreferences } from '../../app/preferences'
import { keyOf, type EventList } from '../../live/event-list'
import { allOf, parseQuery, withTerm } from '../../search/query'
import { text } from '../../text'
import { EmptyState } from '../../widgets/EmptyState'
import { LiveBadge } from '../../widgets/LiveBadge'
import { SearchBox } from '../../widgets/SearchBox'
import { useListKeys } from '../../widgets/use-list-keys'
import { BulkBar, type Action } from './BulkBar'
import { EventDetail } from './EventDetail'
import { EventRowView, rowHeight } from './EventRowView'
import css from './EventsScreen.module.css'
import { FirstEvents } from './FirstEvents'
import { Refused } from './Refused'
import { SavedSearches } from './SavedSearches'
import { groupTerm, statusSelector, type EventsSearch } from './search'
import { useEventList, useHold } from './use-event-list'
import { useLabels } from './use-labels'
import { useSuggestions } from './use-suggestions'

const route = getRouteApi('/events')

/** Groups that are shown at most: as many as the server sends at once. */
const mostGroups = 500

/** All events that a search finds. */
export function EventsScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: { [K in keyof EventsSearch]?: string | undefined }) => {
    const { event, ...rest } = part
    // Going back undoes a choice, and closes the detail; it does not go through what was typed or stepped over.
    const choice = 'status' in part || 'sort' in part || 'group' in part || (event !== undefined && search.event === undefined)
    void navigate({ search: (all) => ({ ...all, ...rest, ...('event' in part ? { event } : {}) }), replace: !choice })
  }
  const namespace = search.ns ?? everywhere
  const query = parseQuery(search.q ?? '')
  const selector = allOf(query.selector, statusSelector(search.status))
  const suggest = useSuggestions(namespace)
  const [grouping, setGrouping] = useState(false)
  const labels = useLabels(namespace, grouping)
  const [picked, select] = useState<ReadonlySet<string> | 'all'>(new Set())
  const [acting, setActing] = useState<Action>()
  const setPicked = (next: ReadonlySet<string> | 'all') => {
    select(next)
    setActing(undefined) // a dialog is about what was selected when it was opened
  }
  const [asked, setAsked] = useState(`${namespace} ${selector}`)
  if (asked !== `${namespace} ${selector}`) {
    // what was selected is of another list
    setAsked(`${namespace} ${selector}`)
    setPicked(new Set())
  }
  const list = useEventList({
    namespace,
    selector,
    sort: search.sort ?? 'severity',
    groupBy: search.group ?? '',
    first: search.group === undefined ? 100 : mostGroups,
  })
  useAnnounce(list.ready ? text.announceOpen(list.counts.critical + list.counts.warning + list.counts.unknown) : undefined)
  return (
    <section className={css.screen} aria-label={text.events} data-detail={search.event !== undefined && search.group === undefined}>
      <header className={css.bar}>
        <SearchBox value={search.q ?? ''} onChange={(q) => change({ q: q === '' ? undefined : q })} {...suggest} />
        <SavedSearches current={search} onOpen={(saved) => void navigate({ search: saved })} />
        <Group gap="sm" wrap="nowrap">
          <SegmentedControl
            size="xs"
            aria-label={text.list.which}
            value={search.status ?? 'all'}
            data={text.list.statuses}
            onChange={(status) => change({ status: status === 'all' ? undefined : status })}
          />
          <Select
            size="xs"
            w={150}
            aria-label={text.list.sort}
            value={search.sort ?? 'severity'}
            data={text.list.sorts}
            allowDeselect={false}
            onChange={(sort) => change({ sort: sort === 'severity' ? undefined : (sort ?? undefined) })}
          />
          <Select
            size="xs"
            w={150}
            aria-label={text.list.group}
            value={search.group ?? ''}
            data={[...text.list.groups, ...labelGroups(labels, search.group)]}
            allowDeselect={false}
            onDropdownOpen={() => setGrouping(true)}
            onChange={(group) => change({ group: group || undefined })}
          />
          <LiveBadge state={list.state} ready={list.ready} />
          <span className={css.count}>{list.ready ? text.shown(list.counts.total, list.counts.total) : ''}</span>
        </Group>
      </header>
      {search.group === undefined ? (
        <Rows
          list={list}
          selected={search.event}
          onOpen={(event) => change({ event })}
          filtered={query.selector !== '' || search.status !== undefined}
          picked={picked}
          onPick={setPicked}
          bar={
            (picked === 'all' || picked.size > 0) && (
              <BulkBar
                target={
                  picked === 'all'
                    ? { kind: 'matching', namespace, selector, search: query.selector, total: list.counts.total }
                    : { kind: 'picked', keys: [...picked] }
                }
                matching={list.counts.total}
                onAll={() => setPicked('all')}
                onClear={() => setPicked(new Set())}
                open={acting}
                onOpen={setActing}
              />
            )
          }
          onAct={setActing}
        />
      ) : (
        <Groups
          list={list}
          onOpen={(value) => change({ group: undefined, q: withTerm(search.q ?? '', groupTerm(search.group ?? '', value)) })}
        />
      )}
      {search.event !== undefined && search.group === undefined && (
        <EventDetail
          target={search.event}
          revision={list.get(search.event)?.timestamp}
          acknowledged={list.get(search.event)?.acknowledged_by !== undefined}
          onClose={() => change({ event: undefined })}
          onStep={(by) => step(list, search.event, by, (event) => change({ event }))}
          time={search.time}
          metrics={search.metrics}
          onTimeline={change}
        />
      )}
    </section>
  )
}

/** Opens the row that is so many places from the open one. */
function step(list: EventList, from: string | undefined, by: number, open: (key: string) => void): void {
  const place = from === undefined ? -1 : list.placeOf(from)
  const row = list.at(place === undefined ? 0 : place + by)
  if (row) open(keyOf(row))
}

interface RowsProps {
  list: EventList
  selected: string | undefined
  onOpen: (key: string | undefined) => void
  filtered: boolean
  /** Keys of the rows that are ticked, or all that the list has. */
  picked: ReadonlySet<string> | 'all'
  onPick: (picked: ReadonlySet<string>) => void
  /** What can be done with them. */
  bar: ReactNode
  /** Opens the dialog of an act on them. */
  onAct: (action: Action) => void
}

function Rows({ list, selected, onOpen, filtered, picked, onPick, bar, onAct }: RowsProps) {
  const { density } = usePreferences()
  const [element, setElement] = useState<HTMLDivElement | null>(null)
  const { ref: frame, width } = useElementSize()
  const [cursor, setCursor] = useState(0)
  useHold(list, element)
  const height = rowHeight(width, density)
  const rows = useVirtualizer({ count: list.length, getScrollElement: () => element, estimateSize: () => height, overscan: 8 })
  const drawn = rows.getVirtualItems()
  const first = drawn[0]?.index ?? 0
  const offset = Math.max(0, Math.floor((first - 50) / 50) * 50) // in steps, so that a scrolled row does not ask anew
  useEffect(() => list.show({ offset, limit: 150 }), [list, offset])
  useEffect(() => rows.measure(), [rows, height])

  const open = (place: number) => {
    const row = list.at(place)
    if (row) onOpen(keyOf(row))
  }
  const move = (by: number) => {
    const place = Math.max(0, Math.min(list.length - 1, cursor + by))
    setCursor(place)
    rows.scrollToIndex(place)
    if (selected !== undefined) open(place)
  }
  const pick = (key: string | undefined) => {
    if (key === undefined) return
    const next = new Set(picked === 'all' ? [] : picked)
    if (!next.delete(key)) next.add(key)
    onPick(next)
  }
  const pickRow = useCallbackRef(pick)
  const openRow = useCallbackRef((key: string, place: number) => {
    setCursor(place)
    onOpen(key)
  })
  const pickPage = () => {
    const { startIndex = 0, endIndex = -1 } = rows.range ?? {}
    const keys = Array.from({ length: endIndex - startIndex + 1 }, (_, i) => list.at(startIndex + i))
      .filter((row) => row !== undefined)
      .map(keyOf)
    onPick(picked === 'all' || keys.every((key) => picked.has(key)) ? new Set() : new Set([...picked, ...keys]))
  }
  const cursorRow = list.at(cursor)
  /** Acts on what is selected, or else on the row of the cursor. */
  const actOn = (action: Action) => {
    if (picked !== 'all' && picked.size === 0) {
      if (!cursorRow) return
      pick(keyOf(cursorRow))
    }
    onAct(action)
  }
  useListKeys([
    ['s', () => actOn('silence')],
    ['a', () => actOn('acknowledge')],
    ['r', () => actOn('resolve')],
    ['e', () => actOn('run')],
    ['x', () => pick(cursorRow && keyOf(cursorRow))],
    ['mod + a', pickPage],
    ['j', () => move(1)],
    ['k', () => move(-1)],
    ['ArrowDown', () => move(1)],
    ['ArrowUp', () => move(-1)],
    ['Home', () => move(-list.length)],
    ['End', () => move(list.length)],
    ['Enter', () => open(cursor), { preventDefault: false }],
    ['Escape', () => onOpen(undefined)],
    ['.', () => list.hold(false)],
  ])

  if (list.failed !== undefined) return <EmptyState title={text.list.failed} help={list.failed} />
  if (list.state.phase === 'denied') return <Refused {...list.state} />
  if (list.ready && list.length === 0) {
    return filtered ? (
      <EmptyState title={text.nothingMatches} help={text.list.nothingHelp} />
    ) : (
      <FirstEvents namespace={list.query.namespace} />
    )
  }
  const columns = text.list.columns
  return (
    <div ref={frame} className={css.frame} data-picks="true">
      {list.waiting > 0 && (
        <Button className={css.pill} size="xs" radius="xl" title={text.pendingHelp} onClick={() => list.hold(false)}>
          {text.pending(list.waiting)}
        </Button>
      )}
      <div
        ref={setElement}
        className={css.rows}
        role="grid"
        aria-label={text.events}
        aria-rowcount={list.length + 1}
        aria-activedescendant={`row-${cursor}`}
        tabIndex={0}
        aria-busy={!list.ready}
      >
        <div className={css.head} role="row" aria-rowindex={1}>
          <span role="columnheader" className={css.pick}>
            <Checkbox
              size="xs"
              aria-label={text.table.pickAll}
              checked={picked === 'all'}
              indeterminate={picked !== 'all' && picked.size > 0}
              onChange={pickPage}
            />
          </span>
          {(['status', 'entity', 'check', 'output', 'history', 'owner', 'since'] as const).map((column) => (
            <span key={column} role="columnheader" className={css[column]}>
              {columns[column]}
            </span>
          ))}
        </div>
        <div style={{ height: rows.getTotalSize() }} className={css.canvas} role="rowgroup">
          {drawn.map((item) => {
            const row = list.at(item.index)
            const key = row ? keyOf(row) : undefined
            return (
              <EventRowView
                key={item.index}
                row={row}
                index={item.index}
                top={item.start}
                height={height}
                gone={key !== undefined && list.isGone(key)}
                changed={key === undefined ? undefined : list.changed(key)}
                selected={key !== undefined && key === selected}
                cursor={item.index === cursor}
                picked={key !== undefined && (picked === 'all' || picked.has(key))}
                onPick={pickRow}
                namespace={list.query.namespace === everywhere}
                onOpen={openRow}
              />
            )
          })}
        </div>
      </div>
      {bar}
    </div>
  )
}

/** Groups by the labels that the namespace's entities have, and by the one that is chosen. */
function labelGroups(labels: readonly string[], chosen: string | undefined): { value: string; label: string }[] {
  const keys = new Set(labels)
  if (chosen?.startsWith('label:')) keys.add(chosen.slice('label:'.length))
  return [...keys].sort().map((key) => ({ value: `label:${key}`, label: text.list.byLabel(key) }))
}

function Groups({ list, onOpen }: { list: EventList; onOpen: (value: string) => void }) {
  if (list.failed !== undefined) return <EmptyState title={text.list.failed} help={list.failed} />
  if (list.state.phase === 'denied') return <Refused {...list.state} />
  if (list.ready && list.groups.length === 0) return <EmptyState title={text.nothingMatches} help={text.list.nothingHelp} />
  return (
    <div className={css.groups}>
      {list.groupCount > list.groups.length && <p className={css.cut}>{text.list.firstGroups(list.groups.length, list.groupCount)}</p>}
      <Table stickyHeader verticalSpacing={6} highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{text.list.value}</Table.Th>
            {marks.map((mark) => (
              <Table.Th key={mark} ta="right">
                {text.group[mark]}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {list.groups.map(({ value, counts }) => (
            <Table.Tr key={value}>
              <Table.Td>
                <Anchor component="button" onClick={() => onOpen(value)}>
                  {value === '' ? text.list.without : value}
                </Anchor>
              </Table.Td>
              {marks.map((mark) => (
                <Table.Td key={mark} ta="right" className={css.number} data-mark={mark} data-none={counts[mark] === 0}>
                  {text.number(counts[mark])}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  )
}

const marks = ['critical', 'warning', 'unknown', 'silenced', 'ok'] as const

import { Button, Group, SegmentedControl, Select } from '@mantine/core'
import { useVirtualizer } from '@tanstack/react-virtual'
import { getRouteApi } from '@tanstack/react-router'
import { useEffect, useRef, useState } from 'react'
import { everywhere } from '../../app/search'
import { usePreferences } from '../../app/preferences'
import { keyOf, type EventList } from '../../live/event-list'
import { allOf, parseQuery } from '../../search/query'
import { text } from '../../text'
import { EmptyState } from '../../widgets/EmptyState'
import { LiveBadge } from '../../widgets/LiveBadge'
import { SearchBox } from '../../widgets/SearchBox'
import { EventRowView } from './EventRowView'
import css from './EventsScreen.module.css'
import { statusSelector, type EventsSearch } from './search'
import { useEventList, useHold } from './use-event-list'

const route = getRouteApi('/events')

/** All events that a search finds. */
export function EventsScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: Partial<EventsSearch>) => void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const query = parseQuery(search.q ?? '')
  const list = useEventList({
    namespace: search.ns ?? everywhere,
    selector: allOf(query.selector, statusSelector(search.status)),
    sort: search.sort ?? 'severity',
    groupBy: search.group ?? '',
  })
  return (
    <section className={css.screen} aria-label={text.events}>
      <header className={css.bar}>
        <SearchBox value={search.q ?? ''} onChange={(q) => change({ q: q === '' ? undefined : q })} />
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
            data={text.list.groups}
            allowDeselect={false}
            onChange={(group) => change({ group: group || undefined })}
          />
          <LiveBadge state={list.state} ready={list.ready} />
        </Group>
      </header>
      <Rows list={list} selected={search.event} onOpen={(event) => change({ event })} filtered={query.selector !== '' || search.status !== undefined} />
    </section>
  )
}

interface RowsProps {
  list: EventList
  selected: string | undefined
  onOpen: (key: string) => void
  filtered: boolean
}

function Rows({ list, selected, onOpen, filtered }: RowsProps) {
  const { density } = usePreferences()
  const [element, setElement] = useState<HTMLDivElement | null>(null)
  useHold(list, element)
  const height = density === 'compact' ? 30 : 40
  const rows = useVirtualizer({ count: list.length, getScrollElement: () => element, estimateSize: () => height, overscan: 20 })
  const drawn = rows.getVirtualItems()
  const first = drawn[0]?.index ?? 0
  const last = drawn.at(-1)?.index ?? 0
  const asked = useRef(-1)
  useEffect(() => {
    // Ask in steps, so that a scrolled row does not ask anew.
    const offset = Math.max(0, Math.floor((first - 50) / 50) * 50)
    if (offset === asked.current && last < offset + 250) return
    asked.current = offset
    list.show({ offset, limit: 250 })
  }, [list, first, last])
  useEffect(() => rows.measure(), [rows, height])

  if (list.failed !== undefined) return <EmptyState title={text.list.failed} help={list.failed} />
  if (list.state.phase === 'denied') return <EmptyState title={text.noAccess} help={list.state.reason} />
  if (list.ready && list.length === 0) {
    return filtered ? <EmptyState title={text.nothingMatches} help={text.list.nothingHelp} /> : <EmptyState title={text.empty} help={text.emptyHelp} />
  }
  return (
    <>
      {list.waiting > 0 && (
        <Button className={css.pill} size="xs" radius="xl" onClick={() => list.hold(false)}>
          {text.pending(list.waiting)}
        </Button>
      )}
      <div ref={setElement} className={css.rows} role="grid" aria-rowcount={list.length} tabIndex={0} aria-busy={!list.ready}>
        <div style={{ height: rows.getTotalSize() }} className={css.canvas}>
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
                namespace={list.query.namespace === everywhere}
                onOpen={onOpen}
              />
            )
          })}
        </div>
      </div>
    </>
  )
}

import { useCallbackRef, useElementSize } from '@mantine/hooks'
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import type { EventCounts, EventGroup } from '../../api/types'
import { useAnnounce } from '../../app/announce'
import { everywhere } from '../../app/search'
import { usePreferences } from '../../app/preferences'
import { useRights } from '../../app/rights'
import { useCluster, useRate } from '../../app/use-cluster'
import { keyOf, type EventList } from '../../live/event-list'
import { text } from '../../text'
import { EmptyState } from '../../widgets/EmptyState'
import { StatusMark, type Mark } from '../../widgets/icons'
import { LiveBadge } from '../../widgets/LiveBadge'
import { useListKeys } from '../../widgets/use-list-keys'
import { EventRowView, rowHeight } from '../events/EventRowView'
import { FirstCheck, FirstEvents } from '../events/FirstEvents'
import { Refused } from '../events/Refused'
import { groupTerm, statusSelector } from '../events/search'
import { useEventList } from '../events/use-event-list'
import { useTold } from '../events/use-told'
import { NobodyTold } from './NobodyTold'
import { OnCallNow } from './OnCallNow'
import rowCss from '../events/EventsScreen.module.css'
import css from './NowScreen.module.css'

const route = getRouteApi('/')

/** Open incidents that are shown at most; the list of events has all. */
const shown = 30
/** Groups of a kind that are asked for: those with the worst incidents first. A storm may be of many lesser ones. */
const groups = 20
/** Groups of a kind that are shown at most. */
const shownGroups = 6

/** What is broken, who has it, and whether somebody was told. */
export function NowScreen() {
  const { ns = everywhere } = route.useSearch()
  const open = statusSelector('open')
  const list = (selector: string, sort: string, first: number, groupBy = '') => ({ namespace: ns, selector, sort, first, groupBy })
  const all = useEventList(list('', 'severity', 0))
  const newest = useEventList(list(open, 'since', shown))
  const byCheck = useEventList(list(open, 'severity', groups, 'check'))
  const byEntity = useEventList(list(open, 'severity', groups, 'entity'))
  const agents = useEventList(list('event.check.name == "keepalive"', 'severity', 0))
  const { critical, warning, unknown } = all.counts
  const incidents = critical + warning + unknown
  useAnnounce(all.ready ? text.announceOpen(incidents) : undefined)
  if (all.state.phase === 'denied') return <Refused {...all.state} />
  if (all.ready && all.counts.total === 0) return <FirstEvents namespace={ns} />
  return (
    <div className={css.screen}>
      <section className={css.head} aria-label={text.now.title}>
        <div className={css.number} data-open={incidents > 0}>
          <b>{text.number(incidents)}</b>
          <span>{text.now.open(incidents)}</span>
        </div>
        <Tiles counts={all.counts} ns={ns} />
        <div className={css.side}>
          <LiveBadge state={all.state} ready={all.ready} />
          <Fleet counts={agents.counts} ns={ns} />
          <Rate />
        </div>
      </section>
      {all.ready && agents.ready && all.counts.total > 0 && all.counts.total === agents.counts.total && <FirstCheck namespace={ns} />}
      <Storm groups={byCheck.groups} by="check" open={incidents} ns={ns} />
      <Storm groups={byEntity.groups} by="entity" open={incidents} ns={ns} />
      <div className={css.body}>
        <Newest list={newest} ns={ns} />
        <div className={css.aside}>
          <NobodyTold namespace={ns} open={incidents} />
          <OnCallNow namespace={ns} />
          <Groups title={text.now.byCheck} by="check" list={byCheck} ns={ns} />
          <Groups title={text.now.byEntity} by="entity" list={byEntity} ns={ns} />
        </div>
      </div>
    </div>
  )
}

const searchOf = (ns: string) => (ns === everywhere ? {} : { ns })

function Tiles({ counts, ns }: { counts: EventCounts; ns: string }) {
  const tiles: { mark: Mark | 'silenced'; selector: string }[] = [
    { mark: 'critical', selector: 'event.check.status == 2' },
    { mark: 'warning', selector: 'event.check.status == 1' },
    { mark: 'unknown', selector: 'event.check.status > 2' },
    { mark: 'silenced', selector: '' },
  ]
  return (
    <ul className={css.tiles}>
      {tiles.map(({ mark, selector }) => (
        <li key={mark}>
          <Link
            to="/events"
            search={{ ...searchOf(ns), status: mark === 'silenced' ? 'silenced' : 'open', ...(selector === '' ? {} : { q: selector }) }}
            className={css.tile}
            data-mark={mark}
            data-none={counts[mark] === 0}
            title={text.groupHelp[mark]}
          >
            {mark !== 'silenced' && <StatusMark mark={mark} size={18} />}
            <b>{text.number(counts[mark])}</b>
            <span>{text.group[mark]}</span>
          </Link>
        </li>
      ))}
    </ul>
  )
}

/** Of agents, keepalives tell who is connected. */
function Fleet({ counts, ns }: { counts: EventCounts; ns: string }) {
  if (counts.total === 0) return null
  const late = counts.total - counts.ok
  const share = (n: number) => ({ width: `${(100 * n) / counts.total}%` })
  return (
    <Link to="/entities" search={searchOf(ns)} className={css.fleet}>
      <span>{text.now.agents(counts.ok, late)}</span>
      <span className={css.bar} aria-hidden="true">
        <i className={css.ok} style={share(counts.ok)} />
        <i className={css.late} style={share(late)} />
      </span>
    </Link>
  )
}

/** How much comes in, on all backends and in all namespaces; nothing for users who may not know that. */
function Rate() {
  const rights = useRights(everywhere)
  const allowed = rights.known && rights.can('get', 'cluster')
  const cluster = useCluster(allowed)
  const rate = useRate(cluster)
  if (!allowed || cluster.isError) return null
  return (
    <Link to="/cluster" className={css.rate} title={text.now.rateHelp}>
      {text.now.rate(rate)}
    </Link>
  )
}

/** From how many open incidents on one group counts as a storm, and from which part of all. */
const stormFrom = 20
const stormPart = 0.3

const openIn = ({ counts }: EventGroup) => counts.critical + counts.warning + counts.unknown

/** Says that many incidents have one thing in common. */
function Storm({ groups, by, open, ns }: { groups: readonly EventGroup[]; by: 'check' | 'entity'; open: number; ns: string }) {
  const worst = groups.reduce<EventGroup | undefined>((most, group) => (most && openIn(most) >= openIn(group) ? most : group), undefined)
  if (!worst || openIn(worst) < stormFrom || openIn(worst) < stormPart * open) return null
  return (
    <p className={css.storm} role="status">
      {text.now.storm(openIn(worst), open, by, worst.value)}{' '}
      <Link to="/events" search={{ ...searchOf(ns), status: 'open', q: groupTerm(by, worst.value) }}>
        {text.now.show}
      </Link>
    </p>
  )
}

const headings = ['status', 'entity', 'check', 'output', 'told', 'owner'] as const

function Newest({ list, ns }: { list: EventList; ns: string }) {
  const navigate = useNavigate()
  const { density } = usePreferences()
  const { ref: frame, width } = useElementSize()
  const height = rowHeight(width, density)
  const rows = Math.min(shown, list.length)
  const keys = Array.from({ length: rows }, (_, i) => list.at(i))
    .filter((row) => row !== undefined)
    .map(keyOf)
  const told = useTold(keys)
  const open = useCallbackRef(
    (event: string) => void navigate({ to: '/events', search: { ...searchOf(ns), status: 'open', sort: 'since', event } }),
  )
  // The cursor stays with its incident: newer ones come in above it. When that one leaves, the next is at its place.
  const [cursor, setCursor] = useState({ key: '', place: 0 })
  const move = (by: 1 | -1) => {
    const at = keys.indexOf(cursor.key)
    const next = at >= 0 ? at + by : by > 0 ? cursor.place : cursor.place - 1
    const place = Math.max(0, Math.min(keys.length - 1, next))
    setCursor({ key: keys[place] ?? '', place })
    document.getElementById(`row-${place}`)?.scrollIntoView({ block: 'nearest' })
  }
  // The arrows scroll: there is more below the list.
  useListKeys([
    ['j', () => move(1)],
    ['k', () => move(-1)],
    ['Enter', () => keys.includes(cursor.key) && open(cursor.key), { preventDefault: false }],
  ])
  return (
    <section className={css.panel} aria-label={text.now.newest}>
      <h2>{text.now.newest}</h2>
      {list.ready && rows === 0 ? (
        <EmptyState title={text.allClear} help={text.now.clearHelp} />
      ) : (
        <div ref={frame} className={rowCss.frame} data-told="true">
          <div className={rowCss.head} aria-hidden="true">
            {([...headings, 'since'] as const).map((column) => (
              <span key={column} className={rowCss[column]}>
                {column === 'told' ? text.told.column : text.list.columns[column]}
              </span>
            ))}
          </div>
          <div
            role="grid"
            aria-label={text.now.newest}
            aria-rowcount={rows}
            aria-activedescendant={keys.includes(cursor.key) ? `row-${keys.indexOf(cursor.key)}` : undefined}
            tabIndex={0}
            className={css.rows}
            style={{ height: rows * height }}
          >
            {Array.from({ length: rows }, (_, i) => {
              const row = list.at(i)
              const key = row && keyOf(row)
              return (
                <EventRowView
                  key={i}
                  row={row}
                  index={i}
                  top={i * height}
                  height={height}
                  gone={key !== undefined && list.isGone(key)}
                  changed={key === undefined ? undefined : list.changed(key)}
                  selected={false}
                  cursor={key !== undefined && key === cursor.key}
                  namespace={ns === everywhere}
                  told={(key === undefined ? undefined : told.get(key)) ?? null}
                  onOpen={open}
                />
              )
            })}
          </div>
        </div>
      )}
      {list.length > rows && (
        <Link to="/events" search={{ ...searchOf(ns), status: 'open', sort: 'since' }} className={css.more}>
          {text.now.all(list.length)}
        </Link>
      )}
    </section>
  )
}

function Groups({ title, by, list, ns }: { title: string; by: 'check' | 'entity'; list: EventList; ns: string }) {
  const groups = list.groups.slice(0, shownGroups)
  if (groups.length === 0) return null
  return (
    <section className={css.panel} aria-label={title}>
      <h2>{title}</h2>
      <ul className={css.groups}>
        {groups.map((group) => (
          <li key={group.value}>
            <Link to="/events" search={{ ...searchOf(ns), status: 'open', q: groupTerm(by, group.value) }} className={css.group}>
              <span className={css.name}>{group.value}</span>
              {(['critical', 'warning', 'unknown'] as const).map(
                (mark) =>
                  group.counts[mark] > 0 && (
                    <span key={mark} className={css.badge} data-mark={mark}>
                      <StatusMark mark={mark} size={12} /> {text.compact(group.counts[mark])}
                    </span>
                  ),
              )}
            </Link>
          </li>
        ))}
      </ul>
    </section>
  )
}

import { ActionIcon } from '@mantine/core'
import { useFullscreenDocument, useInterval } from '@mantine/hooks'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { everywhere } from '../../app/search'
import { Age } from '../../app/time'
import { text } from '../../text'
import { wallText as t } from '../../text/wall'
import { keyOf, type EventList } from '../../live/event-list'
import { Icon, markOf, StatusMark, type Mark } from '../../widgets/icons'
import { LiveBadge } from '../../widgets/LiveBadge'
import { Refused } from '../events/Refused'
import { statusSelector } from '../events/search'
import { useEventList } from '../events/use-event-list'
import css from './WallScreen.module.css'

const route = getRouteApi('/wall')

/** Incidents on one page, and how long it is shown, in ms. */
const rows = 8
const pageFor = 12_000

/** What is open, for a screen that people see from afar: big, without a pointer, and never asleep. */
export function WallScreen() {
  const { ns = everywhere } = route.useSearch()
  const all = useEventList({ namespace: ns, selector: '', sort: 'severity', groupBy: '' })
  const open = useEventList({ namespace: ns, selector: statusSelector('open'), sort: 'severity', groupBy: '' })
  const { toggle, fullscreen } = useFullscreenDocument()
  useAwake()
  const pages = Math.max(1, Math.ceil(Math.min(open.length, 100) / rows))
  const page = usePage(pages)
  const { critical, warning, unknown } = all.counts
  const incidents = critical + warning + unknown
  if (all.state.phase === 'denied') return <Refused {...all.state} />
  const old = all.state.phase !== 'live'
  return (
    <div className={css.wall} data-old={old}>
      <header className={css.head}>
        <h1 className={css.number} data-open={incidents > 0}>
          <b>{text.number(incidents)}</b> <span>{t.open(incidents)}</span>
        </h1>
        <ul className={css.tiles}>
          {(['critical', 'warning', 'unknown'] as const).map((mark) => (
            <li key={mark} data-mark={mark} data-none={all.counts[mark] === 0}>
              <StatusMark mark={mark} size={34} />
              <b>{text.number(all.counts[mark])}</b>
              <span>{text.group[mark]}</span>
            </li>
          ))}
        </ul>
        <div className={css.tools}>
          <LiveBadge state={all.state} ready={all.ready} />
          <span>
            <ActionIcon
              variant="subtle"
              color="gray"
              size="lg"
              aria-label={t.full}
              title={t.full}
              aria-pressed={fullscreen}
              onClick={() => void toggle()}
            >
              <Icon name="full" />
            </ActionIcon>
            <Link to="/" search={ns === everywhere ? {} : { ns }} className={css.leave} aria-label={t.leave} title={t.leave}>
              <Icon name="close" />
            </Link>
          </span>
        </div>
      </header>
      {open.ready && open.length === 0 ? (
        <p className={css.clear}>{t.clear}</p>
      ) : (
        <Incidents list={open} page={page} namespace={ns === everywhere} />
      )}
      {pages > 1 && <p className={css.page}>{t.page(page + 1, pages)}</p>}
    </div>
  )
}

function Incidents({ list, page, namespace }: { list: EventList; page: number; namespace: boolean }) {
  const shown = Array.from({ length: rows }, (_, i) => list.at(page * rows + i)).filter((row) => row !== undefined)
  return (
    <ol className={css.list} start={page * rows + 1}>
      {shown.map((row) => {
        const mark: Mark = markOf(row.status)
        return (
          <li key={keyOf(row)} data-mark={mark}>
            <StatusMark mark={mark} size={30} />
            <span className={css.name}>
              <b>{row.entity}</b> {row.check} {namespace && <small>{row.namespace}</small>}
            </span>
            <span className={css.output}>{row.output}</span>
            <span className={css.since}>{row.since > 0 ? <Age at={row.since} /> : ''}</span>
          </li>
        )
      })}
    </ol>
  )
}

/** The page to show: the next one every few seconds. */
function usePage(pages: number): number {
  const [page, setPage] = useState(0)
  useInterval(() => setPage((now) => now + 1), pageFor, { autoInvoke: true })
  return page % pages
}

/** Keeps the screen on, if the browser can. */
function useAwake(): void {
  useEffect(() => {
    if (!('wakeLock' in navigator)) return
    let lock: WakeLockSentinel | undefined
    let over = false
    const ask = () => {
      if (document.visibilityState !== 'visible') return
      navigator.wakeLock.request('screen').then(
        (got) => {
          lock = got
          if (over) void got.release()
        },
        () => {}, // for example on a low battery
      )
    }
    ask()
    document.addEventListener('visibilitychange', ask)
    return () => {
      over = true
      document.removeEventListener('visibilitychange', ask)
      void lock?.release()
    }
  }, [])
}

import { SegmentedControl, Tooltip } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import type { Notification, StateChange } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { clock, span } from '../../app/time'
import { text } from '../../text'
import { markOf } from '../../widgets/icons'
import css from './Timeline.module.css'

interface Props {
  namespace: string
  entity: string
  check: string
  /** Changes with each change of the event's state, so that the history is read anew. */
  revision: number | undefined
}

const hour = 3600
const ranges = { hour, day: 24 * hour, week: 7 * 24 * hour, month: 30 * 24 * hour }
type Range = keyof typeof ranges

/** A part of the band: a state from begin to end, in Unix seconds. */
interface Part {
  begin: number
  end: number
  change: StateChange | undefined
}

/** The states of a check over a time, with who was told and when. */
export function Timeline({ namespace, entity, check, revision }: Props) {
  const { api } = useApp()
  const [range, setRange] = useState<Range>('day')
  const length = ranges[range]
  const query = useQuery({
    queryKey: ['timeline', namespace, entity, check, range, revision],
    queryFn: async () => {
      const end = Date.now() / 1000
      const begin = end - length
      const since = new Date(begin * 1000).toISOString()
      const path = { namespace, entity, check }
      const [changes, before, notifications] = await Promise.all([
        unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/history', { params: { path, query: { since, limit: mostChanges } } })),
        unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/history', { params: { path, query: { until: since, limit: 1 } } })),
        unwrap(
          api.GET('/api/lapwing/v1/namespaces/{namespace}/notifications', {
            params: { path: { namespace }, query: { since, entity, check, limit: mostNotifications } },
          }),
        ).catch(() => null), // the user may not see them
      ])
      return { begin, end, parts: partsOf(changes ?? [], before?.[0], begin, end), notifications: notifications ?? [] }
    },
    placeholderData: (old) => old,
    staleTime: 0, // a status that comes back is a change, too
    refetchInterval: 60_000,
  })
  const data = query.data
  return (
    <div>
      <div className={css.head}>
        <h3>{text.timeline.title}</h3>
        <SegmentedControl
          size="xs"
          aria-label={text.timeline.range}
          value={range}
          data={text.timeline.ranges}
          onChange={(value) => setRange(value as Range)}
        />
      </div>
      {data && <Band {...data} />}
      {query.error && <p className={css.failed}>{query.error.message}</p>}
    </div>
  )
}

const mostChanges = 1000
const mostNotifications = 200

/** Changes are newest first. before is the state that was in force at the begin. */
export function partsOf(changes: readonly StateChange[], before: StateChange | undefined, begin: number, end: number): Part[] {
  const parts: Part[] = []
  let until = end
  for (const change of changes) {
    const at = Math.max(begin, Date.parse(change.time) / 1000)
    if (at < until) parts.unshift({ begin: at, end: until, change })
    until = Math.min(until, at)
  }
  if (until > begin) parts.unshift({ begin, end: until, change: before?.state === 'deleted' ? undefined : before })
  return parts
}

function Band(props: { begin: number; end: number; parts: readonly Part[]; notifications: readonly Notification[] }) {
  const { begin, end, parts, notifications } = props
  const { time } = usePreferences()
  const place = (at: number) => `${(100 * (at - begin)) / (end - begin)}%`
  return (
    <figure className={css.figure} data-testid="timeline">
      <div className={css.band} role="img" aria-label={text.timeline.summary(parts.filter((part) => (part.change?.status ?? 0) !== 0).length)}>
        {parts.map(({ begin: from, end: to, change }) => (
          <Tooltip key={from} label={describe(change, from, to, time)} multiline maw={360} openDelay={100}>
            <span
              className={css.part}
              data-mark={change && change.state !== 'deleted' ? markOf(change.status) : 'none'}
              data-silenced={change?.silenced}
              style={{ left: place(from), width: place(begin + to - from) }}
            />
          </Tooltip>
        ))}
      </div>
      <div className={css.notes}>
        {notifications.map((n) => (
          <Tooltip key={`${n.id}-${n.attempt}-${n.at}`} label={told(n, time)} multiline maw={360}>
            <span className={css.note} data-result={n.result === 'ok' ? 'ok' : 'failed'} style={{ left: place(n.at / 1000) }} />
          </Tooltip>
        ))}
      </div>
      <figcaption>
        <span>{clock(begin, time, false)}</span>
        <span>{text.timeline.told(notifications.length)}</span>
        <span>{text.timeline.now}</span>
      </figcaption>
    </figure>
  )
}

function describe(change: StateChange | undefined, from: number, to: number, zone: 'local' | 'utc'): string {
  const when = `${clock(from, zone)} · ${span(to - from)}`
  if (!change || change.state === 'deleted') return `${text.timeline.nothing} · ${when}`
  const word = change.missing ? text.timeline.missing : text.status(change.status)
  return `${word}${change.silenced ? `, ${text.silenced.toLowerCase()}` : ''} · ${when}${change.output ? `\n${change.output.slice(0, 200)}` : ''}`
}

function told(n: Notification, zone: 'local' | 'utc'): string {
  const whom = (n.recipients ?? []).length > 0 ? ` → ${(n.recipients ?? []).join(', ')}` : ''
  return `${n.handler ?? ''}${whom}: ${n.result}${n.error ? `, ${n.error}` : ''} · ${clock(n.at / 1000, zone)}`
}

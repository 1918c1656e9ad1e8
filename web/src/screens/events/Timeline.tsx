import { Tooltip } from '@mantine/core'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { lazy, Suspense, useRef, useState, type PointerEvent, type ReactNode } from 'react'
import { unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Notification, Silenced, StateChange } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { boundsOf, parseRange, writeBounds } from '../../app/range'
import { clock, span } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { markOf } from '../../widgets/icons'
import { RangeControl } from '../../widgets/RangeControl'
import { cursorOf, plotEdges, useTimeCursor } from '../../widgets/time-cursor'
import css from './Timeline.module.css'
import { silenceWord, told, wordOf } from './timeline-words'

// The charts' and the comparison's libraries are loaded when there is something to draw.
const MetricCharts = lazy(() => import('./MetricCharts'))
const Happened = lazy(() => import('./Happened'))

interface Props {
  namespace: string
  entity: string
  check: string
  /** Changes with each change of the event's state, so that the history is read anew. */
  revision: number | undefined
  /** Names of the silences that hold now. */
  silenced: readonly string[]
  /** The time of band and charts, as in the address. */
  time: string | undefined
  onTime: (time: string | undefined) => void
  /** Names of the metrics that the user has chosen. */
  metrics: readonly string[] | undefined
  onMetrics: (names: readonly string[] | undefined) => void
}

export const initialTime = '1d'

/** A part of the band: a state from begin to end, in Unix seconds. */
export interface Part {
  begin: number
  end: number
  change: StateChange | undefined
}

/** The states of a check over a time, with who was told and when, and its metrics. */
export function Timeline({ namespace, entity, check, revision, silenced, time, onTime, metrics, onMetrics }: Props) {
  const { api, definitions } = useApp()
  const chosen = parseRange(time) ? (time as string) : initialTime
  const states = useStates({ namespace, entity, check, time: chosen, revision })
  const series = useQuery({
    queryKey: ['event-series', namespace, entity, check],
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/series', {
          params: { path: { namespace, entity, check } },
        }),
      ).catch(() => null), // this backend stores no metrics, or the user may not see them
    staleTime: 60_000,
  })
  const held = useQuery({
    queryKey: definitionsKey('silenced', namespace, silenced),
    enabled: silenced.length > 0,
    queryFn: async () => {
      const names = silenced.slice(0, mostSilences)
      const found = await Promise.allSettled(names.map((name) => definitions.one<Silenced & Definition>(kinds.silenced, namespace, name)))
      return found.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    },
  })
  const data = states.data
  const zoom = (from: number, until: number) => onTime(writeBounds(from, until))
  const sync = `event/${namespace}/${entity}/${check}`
  const silences = silenced.length > 0 ? (held.data ?? []) : []
  const charts = (series.data ?? []).length > 0
  return (
    <div className={css.timeline}>
      <div className={css.head}>
        <h3>{text.timeline.title}</h3>
        <RangeControl value={time} initial={initialTime} onChange={onTime} />
      </div>
      {data && <Band {...data} silences={silences} sync={sync} onZoom={zoom} aligned={charts} />}
      {states.error && <p className={css.failed}>{states.error.message}</p>}
      <Suspense fallback={null}>
        {data && data.changes.length + data.notifications.length + silences.length > 0 && <Happened {...data} silences={silences} />}
        {data && charts && (
          <MetricCharts
            series={series.data ?? []}
            from={data.begin}
            until={data.end}
            time={chosen}
            chosen={metrics}
            onChoose={onMetrics}
            onZoom={zoom}
            sync={sync}
          />
        )}
      </Suspense>
    </div>
  )
}

const mostChanges = 1000
const mostNotifications = 200
const mostSilences = 10

interface StatesOf {
  namespace: string
  entity: string
  check: string
  /** As in the address. */
  time: string
  revision?: number | undefined
}

/** The states of a check in a time, and its notifications. */
export function useStates({ namespace, entity, check, time, revision }: StatesOf) {
  const { api } = useApp()
  const range = parseRange(time) ?? { last: 86_400 }
  return useQuery({
    queryKey: ['timeline', namespace, entity, check, time, revision],
    enabled: entity !== '' && check !== '',
    queryFn: async () => {
      const { from: begin, until: end } = boundsOf(range, Date.now() / 1000)
      const since = new Date(begin * 1000).toISOString()
      const until = new Date(end * 1000).toISOString()
      const path = { namespace, entity, check }
      const history = '/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/history'
      const [changes, before, notifications] = await Promise.all([
        unwrap(api.GET(history, { params: { path, query: { since, until, limit: mostChanges } } })),
        unwrap(api.GET(history, { params: { path, query: { until: since, limit: 1 } } })),
        unwrap(
          api.GET('/api/lapwing/v1/namespaces/{namespace}/notifications', {
            params: { path: { namespace }, query: { since, until, entity, check, limit: mostNotifications } },
          }),
        ).catch(() => undefined), // the user may not see them, or they cannot be read
      ])
      return {
        begin,
        end,
        parts: partsOf(changes ?? [], before?.[0], begin, end),
        changes: changes ?? [],
        before: before?.[0],
        notifications: notifications ?? [],
        toldCount: notifications === undefined ? undefined : (notifications ?? []).length,
      }
    },
    placeholderData: keepPreviousData,
    staleTime: 0, // a status that comes back is a change, too
    refetchInterval: 'last' in range ? Math.min(60_000, (range.last * 1000) / 120) : false,
  })
}

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

interface BandProps {
  begin: number
  end: number
  parts: readonly Part[]
  notifications: readonly Notification[]
  /** Undefined if they are not known. */
  toldCount?: number | undefined
  silences: readonly Silenced[]
  /** Of the cursor that plots have, too. */
  sync: string
  onZoom: (from: number, until: number) => void
  /** It has the edges of the plots below. */
  aligned: boolean
}

/** The states as parts of a band, below them what happened. */
export function Band({ begin, end, parts, notifications, toldCount, silences, sync, onZoom, aligned }: BandProps) {
  const { time } = usePreferences()
  const place = (at: number) => `${Math.min(100, Math.max(0, (100 * (at - begin)) / (end - begin)))}%`
  const edges = aligned ? { marginLeft: plotEdges.left, marginRight: plotEdges.right } : {}
  const now = Math.abs(Date.now() / 1000 - end) < (end - begin) / 50
  return (
    <figure className={css.figure} style={edges} data-testid="timeline">
      <Pointer begin={begin} end={end} sync={sync} onZoom={onZoom}>
        <div
          className={css.band}
          role="img"
          aria-label={text.timeline.summary(parts.filter((part) => (part.change?.status ?? 0) !== 0).length)}
        >
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
        <div className={css.silences} aria-hidden="true">
          {parts
            .filter(({ change }) => change?.silenced)
            .map(({ begin: from, end: to }) => (
              <span key={from} className={css.silence} style={{ left: place(from), width: place(begin + to - from) }} />
            ))}
        </div>
      </Pointer>
      <div className={css.notes}>
        {notifications.map((n) => (
          <Tooltip key={`${n.id}-${n.attempt}-${n.at}`} label={`${told(n)} · ${clock(n.at / 1000, time)}`} multiline maw={360}>
            <span className={css.note} data-result={n.result === 'ok' ? 'ok' : 'failed'} style={{ left: place(n.at / 1000) }} />
          </Tooltip>
        ))}
        {silences
          .filter(({ begin: at = 0 }) => at >= begin && at <= end)
          .map((silence) => (
            <Tooltip
              key={silence.metadata?.name}
              label={`${silenceWord(silence)} · ${clock(silence.begin ?? 0, time)}`}
              multiline
              maw={360}
            >
              <span
                className={css.note}
                data-result={silence.acknowledgement ? 'acknowledged' : 'silenced'}
                style={{ left: place(silence.begin ?? 0) }}
              />
            </Tooltip>
          ))}
      </div>
      <figcaption>
        <span>{clock(begin, time, false)}</span>
        <span title={text.timeline.lanes}>{[text.timeline.told(toldCount), ...silences.map(silenceWord)].join(' · ')}</span>
        <span>{now ? text.timeline.now : clock(end, time, false)}</span>
      </figcaption>
    </figure>
  )
}

/** Dragging by less is a click, in px. */
const leastDrag = 4

/** Shows the common cursor over a band, and selects a time by dragging. */
function Pointer({ begin, end, sync, onZoom, children }: Pick<BandProps, 'begin' | 'end' | 'sync' | 'onZoom'> & { children: ReactNode }) {
  const ref = useRef<HTMLDivElement>(null)
  const [drag, setDrag] = useState<{ from: number; to: number }>()
  const at = useTimeCursor(sync)
  const cursor = cursorOf(sync)
  const share = (time: number) => (100 * (time - begin)) / (end - begin)
  const timeAt = (event: PointerEvent) => {
    const box = ref.current?.getBoundingClientRect()
    if (!box || box.width === 0) return begin
    return begin + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (end - begin)
  }
  const wide = () => ((ref.current?.clientWidth ?? 0) * Math.abs((drag?.to ?? 0) - (drag?.from ?? 0))) / (end - begin) >= leastDrag
  return (
    <div
      ref={ref}
      className={css.pointer}
      title={text.timeline.drag}
      onPointerMove={(event) => {
        const time = timeAt(event)
        cursor.set(time, ref)
        if (drag) setDrag({ ...drag, to: time })
      }}
      onPointerLeave={() => cursor.set(undefined, ref)}
      onPointerDown={(event) => {
        if (event.button !== 0 || event.pointerType === 'touch') return
        event.currentTarget.setPointerCapture(event.pointerId)
        setDrag({ from: timeAt(event), to: timeAt(event) })
      }}
      onPointerUp={() => {
        if (drag && wide()) onZoom(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to))
        setDrag(undefined)
      }}
      onPointerCancel={() => setDrag(undefined)}
    >
      {children}
      {drag && (
        <span
          className={css.selection}
          style={{ left: `${share(Math.min(drag.from, drag.to))}%`, width: `${Math.abs(share(drag.to) - share(drag.from))}%` }}
        />
      )}
      {at !== undefined && at >= begin && at <= end && <span className={css.cursor} style={{ left: `${share(at)}%` }} />}
    </div>
  )
}

function describe(change: StateChange | undefined, from: number, to: number, zone: 'local' | 'utc'): string {
  const when = `${clock(from, zone)} · ${span(to - from)}`
  if (!change || change.state === 'deleted') return `${text.timeline.nothing} · ${when}`
  return `${wordOf(change)} · ${when}${change.output ? `\n${change.output.slice(0, 200)}` : ''}`
}

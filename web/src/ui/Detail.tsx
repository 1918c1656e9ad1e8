import { useCallback, useEffect, useImperativeHandle, useRef, useState, type ReactNode, type Ref } from 'react'
import type { SensuEvent } from '../api/types'
import { isSilenced, refOf } from '../live/event'
import type { Feed } from '../live/feed'
import { APIError, type Client } from '../session/client'
import { text } from '../text'
import { copyText } from './copy'
import { CopyButton } from './CopyButton'
import css from './Detail.module.css'
import { HistoryBand } from './HistoryBand'
import { Icon, markOf, StatusMark } from './icons'
import { pastResults, plainOutput, statusSince } from './present'
import { useNow } from './use-feed'

export interface DetailHandle {
  focus: () => void
  copy: () => void
}

interface Props {
  ref: Ref<DetailHandle>
  feed: Feed
  client: Client
  /** Key of the event. */
  target: string
  /** Covers the list, on a small screen. */
  modal: boolean
  onClose: () => void
  onStep: (by: number) => void
}

export function Detail({ ref, feed, client, target, modal, onClose, onStep }: Props) {
  const { event, error, retry } = useEvent(feed, client, target)
  const panel = useRef<HTMLElement>(null)
  const scroll = useRef<HTMLDivElement>(null)
  const row = feed.store.get(target)
  const { namespace, entity, check } = refOf(target)
  const status = event?.check?.status ?? row?.status
  const json = () => JSON.stringify(event, null, 2)

  useImperativeHandle(ref, () => ({
    focus: () => panel.current?.focus(),
    copy: () => {
      if (event) void copyText(json())
    },
  }))
  useEffect(() => {
    if (modal) panel.current?.focus()
  }, [modal])
  useEffect(() => {
    if (scroll.current) scroll.current.scrollTop = 0
  }, [target])

  return (
    <aside
      ref={panel}
      className={css.panel}
      tabIndex={-1}
      role={modal ? 'dialog' : undefined}
      aria-modal={modal || undefined}
      aria-label={`${text.detail}: ${check}, ${entity}`}
    >
      <div className={css.head} data-mark={status === undefined ? undefined : markOf(status)}>
        <div className={css.title}>
          {status !== undefined && <StatusMark mark={markOf(status)} size={22} />}
          <h2>
            {check}
            <span>
              {entity} · {namespace}
            </span>
          </h2>
        </div>
        <div className={css.tools}>
          {event && <CopyButton value={json} label={text.copyJSON} />}
          <button onClick={() => onStep(-1)} title={text.previous} aria-label={text.previous}>
            <Icon name="up" />
          </button>
          <button onClick={() => onStep(1)} title={text.next} aria-label={text.next}>
            <Icon name="down" />
          </button>
        </div>
        <button className={css.close} onClick={onClose} title={text.close} aria-label={text.close}>
          <Icon name="close" />
        </button>
      </div>
      <div className={css.scroll} ref={scroll}>
        {error && (
          <p className={css.error} role="alert">
            {error} <button onClick={retry}>{text.tryAgain}</button>
          </p>
        )}
        {event && !row && feed.store.synced && <p className={css.error}>{text.eventGone}</p>}
        {event && <EventBody event={event} json={json} />}
      </div>
    </aside>
  )
}

/** Loads an event and follows its changes. */
function useEvent(feed: Feed, client: Client, key: string) {
  const [loaded, setLoaded] = useState<{ key: string; event?: SensuEvent; error?: string }>({ key })
  const [attempt, setAttempt] = useState(0)

  useEffect(() => {
    feed.watch(key)
    const abort = new AbortController()
    // Stepping through the list quickly must not ask for every event on the way.
    const timer = setTimeout(() => {
      client.event(refOf(key), abort.signal).then(
        (event) => setLoaded({ key, event }),
        (err: unknown) => {
          if (abort.signal.aborted) return
          const missing = err instanceof APIError && err.status === 404
          const error = missing ? text.eventMissing : text.eventFailed(err instanceof Error ? err.message : String(err))
          setLoaded({ key, error })
        },
      )
    }, 60)
    return () => {
      clearTimeout(timer)
      abort.abort()
      feed.watch(undefined)
    }
  }, [feed, client, key, attempt])

  const retry = useCallback(() => setAttempt((n) => n + 1), [])
  const live = feed.watched?.key === key ? feed.watched.event : undefined
  const current = loaded.key === key ? loaded : { key }
  return { event: live ?? current.event, error: live ? undefined : current.error, retry }
}

function EventBody({ event, json }: { event: SensuEvent; json: () => string }) {
  const now = useNow() / 1000
  const { check, entity } = event
  if (!check || !entity) return null
  const status = check.status ?? 0
  const since = statusSince(check)
  const history = pastResults(check)
  const output = plainOutput(check.output ?? '')
  const f = text.facts
  const system = entity.system

  return (
    <>
      <p className={css.verdict} data-mark={markOf(status)}>
        <b>{since ? text.since(status, now - since.at, since.atLeast) : text.status(status)}</b>
        {(check.occurrences ?? 0) > 0 && <span>{text.occurrence(check.occurrences ?? 0)}</span>}
        {check.state === 'flapping' && <span>{text.flapping}</span>}
        {isSilenced(check) && (
          <span>
            <Icon name="muted" size={14} /> {text.silencedBy(check.silenced ?? [])}
          </span>
        )}
      </p>

      <Section title={text.output}>
        {output === '' ? <p className={css.none}>{text.noOutput}</p> : <pre className={css.output}>{output}</pre>}
      </Section>

      {history.length > 0 && (
        <Section title={text.history}>
          <HistoryBand history={history} now={now} />
        </Section>
      )}

      <Section title={text.times}>
        <Facts
          facts={[
            [f.seen, time(event.timestamp, now)],
            [f.executed, time(check.executed, now)],
            [f.issued, time(check.issued, now)],
            [f.lastOK, time(check.last_ok, now) ?? text.never],
            [f.duration, check.duration ? `${check.duration.toFixed(3)} s` : undefined],
          ]}
        />
      </Section>

      <Section title={text.check}>
        <Facts
          facts={[
            [f.command, check.command ? <code>{check.command}</code> : undefined],
            [f.interval, check.interval ? text.duration(check.interval) : undefined],
            [f.cron, check.cron ? <code>{check.cron}</code> : undefined],
            [f.ttl, check.ttl ? text.duration(check.ttl) : undefined],
            [f.timeout, check.timeout ? text.duration(check.timeout) : undefined],
            [f.subscriptions, list(check.subscriptions)],
            [f.handlers, list(check.handlers)],
            [f.peak, check.occurrences_watermark ? text.number(check.occurrences_watermark) : undefined],
            [f.flap, check.total_state_change ? `${check.total_state_change} %` : undefined],
          ]}
        />
      </Section>

      <Section title={text.entity}>
        <Facts
          facts={[
            [f.class, entity.entity_class],
            [f.host, system?.hostname],
            [f.system, [system?.platform ?? system?.os, system?.platform_version, system?.arch].filter(Boolean).join(' ')],
            [f.agent, entity.sensu_agent_version],
            [f.seen, time(entity.last_seen, now)],
            [f.subscriptions, list(entity.subscriptions)],
          ]}
        />
      </Section>

      <Pairs title={text.labels} sources={[entity.metadata?.labels, check.metadata?.labels, event.metadata?.labels]} />
      <Pairs
        title={text.annotations}
        sources={[entity.metadata?.annotations, check.metadata?.annotations, event.metadata?.annotations]}
      />

      {(check.hooks ?? []).map((hook, i) => (
        <Section key={i} title={`${text.hooks}: ${hook.metadata?.name ?? ''}`}>
          <pre className={css.output}>{plainOutput(hook.output ?? '') || text.noOutput}</pre>
        </Section>
      ))}

      <details className={css.json}>
        <summary>{text.json}</summary>
        <pre className={css.output}>{json()}</pre>
      </details>
    </>
  )
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className={css.section}>
      <h3>{title}</h3>
      {children}
    </section>
  )
}

function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className={css.facts}>
      {facts
        .filter(([, value]) => value !== undefined && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  )
}

function Pairs({ title, sources }: { title: string; sources: (Record<string, string> | null | undefined)[] }) {
  const pairs = Object.entries(Object.assign({}, ...sources) as Record<string, string>).sort()
  if (pairs.length === 0) return null
  return (
    <Section title={title}>
      <ul className={css.pairs}>
        {pairs.map(([name, value]) => (
          <li key={name}>
            <span>{name}</span> {value}
          </li>
        ))}
      </ul>
    </Section>
  )
}

function time(unix: number | undefined, now: number): ReactNode {
  if (!unix) return undefined
  return (
    <time dateTime={new Date(unix * 1000).toISOString()}>
      {text.ago(now - unix)} <small>{text.dateTime(unix)}</small>
    </time>
  )
}

function list(names: readonly string[] | null | undefined): string | undefined {
  return names && names.length > 0 ? names.join(', ') : undefined
}

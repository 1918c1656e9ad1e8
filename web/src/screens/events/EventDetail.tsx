import { Alert, Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { ApiError, unwrap } from '../../api/client'
import type { Check, SensuEvent } from '../../api/types'
import { useApp } from '../../app/context'
import { useNow } from '../../app/time'
import { text } from '../../text'
import { CopyButton } from '../../widgets/CopyButton'
import { DetailPane } from '../../widgets/DetailPane'
import { Facts, list, moment, Output, Pairs, Section } from '../../widgets/Facts'
import { HistoryBand } from '../../widgets/HistoryBand'
import { Icon, markOf } from '../../widgets/icons'
import { EventActions } from './EventActions'
import css from './EventDetail.module.css'
import { pastResults, plainOutput, statusSince } from './present'
import { Timeline } from './Timeline'
import { Verdict } from './Verdict'

interface Props {
  /** namespace/entity/check. */
  target: string
  /** Changes with each result of the event, so that it is read anew; undefined if the list does not have it. */
  revision: number | undefined
  acknowledged: boolean
  onClose: () => void
  onStep: (by: number) => void
  /** The time of the timeline, and names of the metrics beside it, as in the address. */
  time: string | undefined
  metrics: string | undefined
  onTimeline: (change: { time?: string | undefined; metrics?: string | undefined }) => void
}

/** The newest result of an event with all that the agent sent. */
export function EventDetail({ target, revision, acknowledged, onClose, onStep, time, metrics, onTimeline }: Props) {
  const { api } = useApp()
  const [namespace = '', entity = '', check = ''] = target.split('/')
  const query = useQuery({
    queryKey: ['event', target, revision],
    queryFn: () =>
      unwrap(api.GET('/api/core/v2/namespaces/{namespace}/events/{entity}/{check}', { params: { path: { namespace, entity, check } } })),
    placeholderData: (old, oldQuery) => (oldQuery?.queryKey[1] === target ? old : undefined),
  })
  const event = query.data
  const status = event?.check?.status
  const mark = status === undefined ? undefined : markOf(status)
  const json = () => JSON.stringify(event, null, 2)
  return (
    <DetailPane
      id={target}
      label={`${text.detail}: ${check}, ${entity}`}
      title={check}
      subtitle={`${entity} · ${namespace}`}
      mark={mark}
      tools={event && <CopyButton value={json} label={text.copyJSON} />}
      onClose={onClose}
      onStep={onStep}
    >
      {query.error && (
        <Alert color="red" role="alert">
          {query.error instanceof ApiError && query.error.missing ? text.eventMissing : text.eventFailed(query.error.message)}{' '}
          <Button variant="subtle" size="compact-sm" onClick={() => void query.refetch()}>
            {text.tryAgain}
          </Button>
        </Alert>
      )}
      {event?.check && <StatusLine check={event.check} />}
      <Verdict namespace={namespace} entity={entity} check={check} revision={revision} />
      {event?.check && <EventActions namespace={namespace} entity={entity} check={event.check} acknowledged={acknowledged} />}
      {event && <NewestOutput output={event.check?.output ?? ''} />}
      <Timeline
        namespace={namespace}
        entity={entity}
        check={check}
        revision={status}
        silenced={event?.check?.silenced ?? []}
        time={time}
        onTime={(next) => onTimeline({ time: next })}
        metrics={metrics?.split(',')}
        onMetrics={(names) => onTimeline({ metrics: names?.join(',') })}
      />
      {event && <EventBody event={event} json={json} />}
    </DetailPane>
  )
}

/** The status of an event, for how long, and what else is said of it. */
function StatusLine({ check }: { check: Check }) {
  const now = useNow() / 1000
  const status = check.status ?? 0
  const since = statusSince(check)
  return (
    <p className={css.verdict} data-mark={markOf(status)}>
      <b>{since ? text.since(status, now - since.at, since.atLeast) : text.status(status)}</b>
      {(check.occurrences ?? 0) > 0 && <span>{text.occurrence(check.occurrences ?? 0)}</span>}
      {check.state === 'flapping' && <span>{text.flapping}</span>}
      {(check.silenced ?? []).length > 0 && (
        <span>
          <Icon name="muted" size={14} /> {text.silencedBy(check.silenced ?? [])}
        </span>
      )}
    </p>
  )
}

function NewestOutput({ output }: { output: string }) {
  const plain = plainOutput(output)
  return <Section title={text.output}>{plain === '' ? <p className={css.none}>{text.noOutput}</p> : <Output>{plain}</Output>}</Section>
}

function EventBody({ event, json }: { event: SensuEvent; json: () => string }) {
  const now = useNow() / 1000
  const { check, entity } = event
  if (!check || !entity) return null
  const history = pastResults(check)
  const f = text.facts
  const system = entity.system

  return (
    <>
      {history.length > 0 && (
        <Section title={text.history}>
          <HistoryBand history={history} now={now} />
        </Section>
      )}

      <Section title={text.times}>
        <Facts
          facts={[
            [f.seen, moment(event.timestamp)],
            [f.executed, moment(check.executed)],
            [f.issued, moment(check.issued)],
            [f.lastOK, moment(check.last_ok) ?? text.never],
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

      <Section
        title={text.entity}
        tools={
          <Link
            to="/entities"
            search={{ ns: entity.metadata?.namespace, entity: `${entity.metadata?.namespace}/${entity.metadata?.name}` }}
          >
            {text.showEntity}
          </Link>
        }
      >
        <Facts
          facts={[
            [f.class, entity.entity_class],
            [f.host, system?.hostname],
            [f.system, [system?.platform ?? system?.os, system?.platform_version, system?.arch].filter(Boolean).join(' ')],
            [f.agent, entity.sensu_agent_version],
            [f.seen, moment(entity.last_seen)],
            [f.subscriptions, list(entity.subscriptions)],
          ]}
        />
      </Section>

      <Pairs title={text.labels} sources={[entity.metadata?.labels, check.metadata?.labels, event.metadata?.labels]} />
      <Pairs title={text.annotations} sources={[entity.metadata?.annotations, check.metadata?.annotations, event.metadata?.annotations]} />

      {(check.hooks ?? []).map((hook, i) => (
        <Section key={i} title={`${text.hooks}: ${hook.metadata?.name ?? ''}`}>
          <Output>{plainOutput(hook.output ?? '') || text.noOutput}</Output>
        </Section>
      ))}

      <details className={css.json}>
        <summary>{text.json}</summary>
        <Output>{json()}</Output>
      </details>
    </>
  )
}

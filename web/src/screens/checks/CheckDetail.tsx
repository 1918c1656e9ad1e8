import { Button, Group } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { Moment } from '../../app/time'
import { yamlOf } from '../../editor/yaml'
import { definitionsKey } from '../../live/definitions'
import { keyOf } from '../../live/event-list'
import { quoted } from '../../search/query'
import { text } from '../../text'
import { checksText as t } from '../../text/checks'
import { CopyButton } from '../../widgets/CopyButton'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, list, moment, Output, Pairs, Section } from '../../widgets/Facts'
import { markOf, StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import css from './ChecksScreen.module.css'
import { failingOf, lateness, markOfCheck, schedule, type CheckRow } from './row'
import { useTargets } from './use-checks'

/** Failing entities that are shown; the list of events has all. */
const shown = 10

interface Props {
  /** namespace/name. */
  target: string
  /** undefined if there is no such check. */
  row: CheckRow | undefined
  onClose: () => void
  onStep: (by: number) => void
  onAct: (act: string) => void
}

/** A check: what it does, when and where it runs next, and which entities fail it. */
export function CheckDetail({ target, row, onClose, onStep, onAct }: Props) {
  const [namespace = '', ...rest] = target.split('/')
  const name = rest.join('/')
  const rights = useRights(namespace)
  if (!row) {
    return (
      <DetailPane id={target} label={name} title={name} subtitle={namespace} onClose={onClose}>
        <EmptyState title={text.missing} help={target} />
      </DetailPane>
    )
  }
  const { check, late, counts } = row
  const f = t.facts
  const acts = [
    { act: 'run', label: t.run, why: rights.why('create', 'checks') },
    { act: 'edit', label: text.edit, why: rights.why('update', 'checks') },
    { act: 'publish', label: check.publish ? t.unpublish : t.publish, why: rights.why('update', 'checks') },
    { act: 'delete', label: text.delete, why: rights.why('delete', 'checks') },
  ]
  return (
    <DetailPane
      id={target}
      label={`${text.check}: ${name}`}
      title={name}
      subtitle={namespace}
      mark={markOfCheck(counts)}
      tools={<CopyButton label={text.copyYAML} value={() => yamlOf(kinds.checks, { ...check })} />}
      onClose={onClose}
      onStep={onStep}
    >
      <Group gap="sm">
        {acts.map(({ act, label, why }) => (
          <Button
            key={act}
            size="xs"
            variant={act === 'run' ? 'filled' : 'default'}
            disabled={why !== undefined}
            title={why}
            onClick={() => onAct(act)}
          >
            {label}
          </Button>
        ))}
      </Group>
      <Failing row={row} />
      <Section title={t.what}>
        <Facts
          facts={[
            [f.late, late && (late.summary || lateness(late))],
            [f.since, moment(late?.since)],
            [f.lastRun, moment(late?.last_run) ?? text.never],
            [f.schedule, schedule(check)],
            [f.published, check.publish ? t.yes : t.no],
            [f.subscriptions, list(check.subscriptions)],
            [f.handlers, list(check.handlers)],
            [f.pipelines, list((check.pipelines ?? []).map((one) => one.name ?? ''))],
            [f.roundRobin, check.round_robin ? t.yes : undefined],
            [f.proxy, check.proxy_entity_name],
            [f.timeout, check.timeout ? text.duration(check.timeout) : undefined],
            [f.ttl, check.ttl ? text.duration(check.ttl) : undefined],
            [f.metrics, check.output_metric_format],
            [f.assets, list(check.runtime_assets)],
            [f.hooks, list((check.check_hooks ?? []).flatMap((hooks) => Object.values(hooks).flatMap((names) => names ?? [])))],
            [f.depends, list(check.depends_on)],
            [f.by, check.metadata?.created_by],
          ]}
        />
      </Section>
      <Section title={f.command}>
        <Output>{check.command ?? ''}</Output>
      </Section>
      <NextRuns namespace={namespace} name={name} />
      <Targets namespace={namespace} name={name} />
      <Pairs title={text.labels} sources={[check.metadata?.labels]} />
      <Pairs title={text.annotations} sources={[check.metadata?.annotations]} />
    </DetailPane>
  )
}

function Failing({ row: { namespace, name, counts } }: { row: CheckRow }) {
  const { api } = useApp()
  const failing = failingOf(counts)
  const selector = `event.check.name == ${quoted(name)}`
  const query = useQuery({
    queryKey: ['check-failing', namespace, name, failing],
    enabled: failing > 0,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
          params: {
            path: { namespace },
            query: { fieldSelector: `${selector} && event.is_incident == true`, sort: 'severity', limit: shown },
          },
        }),
      ),
    placeholderData: (old) => old,
  })
  return (
    <Section title={counts ? `${t.results}: ${t.of(failing, counts.total)}` : t.results}>
      {counts === undefined || failing === 0 ? (
        <p className={css.muted}>{counts ? t.allPass : t.noneYet}</p>
      ) : (
        <QueryView query={query} rows={2}>
          {({ rows }) => (
            <>
              <ul className={css.failing}>
                {(rows ?? []).map((event) => (
                  <li key={keyOf(event)}>
                    <Link to="/events" search={{ ns: namespace, q: selector, event: keyOf(event) }}>
                      <StatusMark mark={markOf(event.status)} /> {event.entity} <small>{event.output}</small>
                    </Link>
                  </li>
                ))}
              </ul>
              <Link className={css.more} to="/events" search={{ ns: namespace, q: selector, status: 'failing' }}>
                {t.showAll(failing)}
              </Link>
            </>
          )}
        </QueryView>
      )}
    </Section>
  )
}

function NextRuns({ namespace, name }: { namespace: string; name: string }) {
  const { api } = useApp()
  const query = useQuery({
    queryKey: definitionsKey('checks', 'next', namespace, name),
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/checks/{name}/next', {
          params: { path: { namespace, name }, query: { count: 5 } },
        }),
      ),
    refetchInterval: 10_000,
  })
  return (
    <Section title={t.next}>
      <QueryView query={query} rows={2}>
        {({ problem, runs, pauses, spread, agent, now }) => (
          <>
            {problem && <p className={css.muted}>{problem}</p>}
            {(now ?? []).map((why) => (
              <p key={why} className={css.muted}>
                {why}
              </p>
            ))}
            {!problem && (runs ?? []).length === 0 && <p className={css.muted}>{t.noRuns}</p>}
            <ul className={css.runs}>
              {(runs ?? []).map((at) => (
                <li key={at}>
                  <Moment at={at} />
                </li>
              ))}
              {(pauses ?? []).map(({ from, until, why }) => (
                <li key={from} className={css.muted}>
                  <Moment at={from} seconds={false} /> – <Moment at={until} seconds={false} /> {t.pause(why)}
                </li>
              ))}
            </ul>
            {spread && <p className={css.muted}>{agent ? t.spread : t.perAgent}</p>}
          </>
        )}
      </QueryView>
    </Section>
  )
}

function Targets({ namespace, name }: { namespace: string; name: string }) {
  const query = useTargets(namespace, name)
  return (
    <Section title={t.targets}>
      <QueryView query={query} rows={2}>
        {({ agents, names, not_connected, not_connected_names, proxies, round_robin, subscriptions }) => (
          <Facts
            facts={[
              [t.connected(agents), names ? more(names, agents) : t.hidden],
              [t.notConnected(not_connected), not_connected > 0 ? more(not_connected_names ?? [], not_connected) : undefined],
              [t.facts.roundRobin, round_robin ? t.oneAtATime : undefined],
              [t.facts.proxy, proxies ? t.proxies(proxies) : undefined],
              ...(subscriptions ?? []).map((one): [string, string] => [one.name, t.connected(one.agents)]),
            ]}
          />
        )}
      </QueryView>
    </Section>
  )
}

/** Names, and that there are more of them. */
const more = (names: readonly string[], n: number) => names.join(', ') + (n > names.length ? ', …' : '')

import { Button, Group } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState, type ReactNode } from 'react'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import type { Entity, EntityRow } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { Age, Moment, span, useNow } from '../../app/time'
import { DefinitionEditor } from '../../editor'
import { yamlOf } from '../../editor/yaml'
import { definitionsKey } from '../../live/definitions'
import { keyOf, type EventList } from '../../live/event-list'
import { quoted } from '../../search/query'
import { text } from '../../text'
import { auditText } from '../../text/audit'
import { entitiesText as t } from '../../text/entities'
import { CopyButton } from '../../widgets/CopyButton'
import { DeleteDefinition } from '../../widgets/DeleteDefinition'
import { DetailPane } from '../../widgets/DetailPane'
import { Facts, list, moment, Pairs, Section } from '../../widgets/Facts'
import { HistoryBars } from '../../widgets/HistoryBars'
import { markOf, StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { summary } from '../audit/present'
import { useEventList } from '../events/use-event-list'
import css from './EntitiesScreen.module.css'
import { SilenceEntities } from './EntityBulk'
import { LabelsDialog, SubscriptionsDialog } from './EntityEdit'
import { AgentWord } from './marks'
import { agentOf, gapsOf, isMark } from './present'

interface Props {
  /** namespace/name. */
  target: string
  onClose: () => void
  onStep: ((by: number) => void) | undefined
}

/** Checks, gaps, silences and changes that are shown at most. */
const shown = { checks: 50, gaps: 5, changes: 8 }

type Act = 'silence' | 'edit' | 'subscriptions' | 'labels' | 'delete'

/** An entity: its checks, its agent, its host, and who changed it. */
export function EntityDetail({ target, onClose, onStep }: Props) {
  const { api, definitions } = useApp()
  const [namespace = ''] = target.split('/')
  const name = target.slice(namespace.length + 1)
  const rights = useRights(namespace)
  const [acting, setActing] = useState<Act>()
  const query = useQuery({
    queryKey: definitionsKey('entities', 'one', namespace, name),
    queryFn: () => definitions.one<Entity & Record<string, unknown>>(kinds.entities, namespace, name),
    refetchInterval: 10_000,
    retry: false,
  })
  const row = useQuery({
    queryKey: ['entity-row', target],
    queryFn: async () => {
      const found = await unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/view', {
          params: { path: { namespace }, query: { fieldSelector: `entity.name == ${quoted(name)}`, limit: 1, facets: 'subscription' } },
        }),
      )
      return found.rows?.[0]
    },
    refetchInterval: 5000,
    retry: false,
  })
  const events = useEventList({ namespace, selector: `event.entity.name == ${quoted(name)}`, sort: 'severity', groupBy: '' })
  const entity = query.data
  const update = rights.why('update', 'entities')
  const acts: { act: Act; label: string; why: string | undefined }[] = [
    { act: 'silence', label: t.bulk.actions.silence, why: rights.why('create', 'silenced') },
    { act: 'edit', label: t.edit, why: update },
    { act: 'delete', label: text.delete, why: rights.why('delete', 'entities') },
  ]
  const done = () => setActing(undefined)
  return (
    <DetailPane
      id={target}
      label={`${t.detail}: ${name}`}
      title={name}
      subtitle={namespace}
      mark={isMark(row.data?.worst) ? row.data.worst : undefined}
      tools={entity && <CopyButton label={text.copyYAML} value={() => yamlOf(kinds.entities, { ...entity })} />}
      onClose={onClose}
      {...(onStep ? { onStep } : {})}
    >
      <QueryView query={query}>
        {(one) => (
          <>
            <Group gap="sm">
              {acts.map(({ act, label, why }) => (
                <Button key={act} size="xs" variant="default" disabled={why !== undefined} title={why} onClick={() => setActing(act)}>
                  {label}
                </Button>
              ))}
            </Group>
            <Checks namespace={namespace} name={name} events={events} />
            <Session namespace={namespace} name={name} entity={one} row={row.data} events={events} />
            <Section
              title={t.subscriptions}
              tools={
                <Button
                  size="compact-sm"
                  variant="default"
                  aria-label={t.subscriptionsEdit}
                  disabled={update !== undefined}
                  title={update}
                  onClick={() => setActing('subscriptions')}
                >
                  {t.edit}
                </Button>
              }
            >
              <p>{list((one.subscriptions ?? []).filter((sub) => sub !== `entity:${name}`)) ?? t.none}</p>
            </Section>
            <Section
              title={text.labels}
              tools={
                <Button
                  size="compact-sm"
                  variant="default"
                  aria-label={t.labelsEdit}
                  disabled={update !== undefined}
                  title={update}
                  onClick={() => setActing('labels')}
                >
                  {t.edit}
                </Button>
              }
            >
              <Labels labels={one.metadata?.labels} />
            </Section>
            <Silences namespace={namespace} events={events} />
            <System entity={one} />
            <Pairs title={text.annotations} sources={[one.metadata?.annotations]} />
            <Section title={t.metrics}>
              <Link
                to="/explore"
                search={{ ns: namespace, target: [`seriesByTag('namespace=${namespace}','entity=${name}')`] }}
                className={css.more}
              >
                {t.explore}
              </Link>
            </Section>
            <Changes namespace={namespace} name={name} />
          </>
        )}
      </QueryView>
      {acting === 'silence' && <SilenceEntities target={{ kind: 'picked', keys: [target] }} onClose={done} />}
      {acting === 'edit' && entity && <DefinitionEditor kind={kinds.entities} definition={entity} onClose={done} />}
      {acting === 'subscriptions' && entity && <Subscriptions entity={entity} namespace={namespace} onClose={done} />}
      {acting === 'labels' && entity && <LabelsDialog entity={entity} onClose={done} />}
      {acting === 'delete' && entity && (
        <DeleteDefinition
          kind={kinds.entities}
          definition={entity}
          onClose={(deleted) => {
            done()
            if (deleted) onClose()
          }}
        >
          <p>{t.deleteHelp(events.counts.total)}</p>
        </DeleteDefinition>
      )}
    </DetailPane>
  )
}

/** The editor with the subscriptions that other entities have. */
function Subscriptions({ entity, namespace, onClose }: { entity: Entity; namespace: string; onClose: () => void }) {
  const { api } = useApp()
  const known = useQuery({
    queryKey: ['values', 'entities', namespace, 'subscription'],
    staleTime: 30_000,
    queryFn: async () => {
      const params = { path: { namespace }, query: { groupBy: 'subscription', limit: 100 } }
      const found = await unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/view', { params }))
      return (found.group ?? []).map(({ value }) => value)
    },
  })
  return <SubscriptionsDialog entity={entity} known={known.data ?? []} onClose={onClose} />
}

function Labels({ labels }: { labels: Record<string, string> | null | undefined }) {
  const pairs = Object.entries(labels ?? {}).sort()
  if (pairs.length === 0) return <p className={css.muted}>{t.none}</p>
  return <Facts facts={pairs} />
}

/** Its checks with their last results, the worst first. */
function Checks({ namespace, name, events }: { namespace: string; name: string; events: EventList }) {
  const rows = Array.from({ length: Math.min(shown.checks, events.length) }, (_, i) => events.at(i)).filter((row) => row !== undefined)
  const search = { ns: namespace, q: `entity == ${quoted(name)}` }
  return (
    <Section
      title={events.ready ? t.checks(events.counts.total) : text.nav.checks}
      tools={
        <Link to="/events" search={search}>
          {t.allEvents}
        </Link>
      }
    >
      {events.state.phase === 'denied' ? (
        <p className={css.muted}>
          {t.noChecksAccess} {text.needs('list', 'events')}
        </p>
      ) : events.ready && rows.length === 0 ? (
        <p className={css.muted}>{t.noChecks}</p>
      ) : (
        <ul className={css.checks} aria-busy={!events.ready}>
          {rows.map((row) => (
            <li key={keyOf(row)}>
              <Link to="/events" search={{ ...search, event: keyOf(row) }}>
                <StatusMark mark={markOf(row.status)} />
                <span title={row.output}>
                  <span className="visually-hidden">{text.status(row.status)}</span> {row.check} <small>{row.output}</small>
                </span>
                <HistoryBars statuses={row.history ?? []} />
                <small>{row.since > 0 ? <Age at={row.since} /> : '–'}</small>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </Section>
  )
}

interface SessionProps {
  namespace: string
  name: string
  entity: Entity
  row: EntityRow | undefined
  events: EventList
}

/** Whether its agent is connected and where, and when it was not heard of. */
function Session({ namespace, name, entity, row, events }: SessionProps) {
  const { api } = useApp()
  const now = useNow() / 1000
  const keepalive = events.get(`${namespace}/${name}/keepalive`)
  const history = useQuery({
    queryKey: ['keepalive-history', namespace, name, keepalive?.status],
    enabled: keepalive !== undefined,
    retry: false,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/history', {
          params: { path: { namespace, entity: name, check: 'keepalive' }, query: { limit: 100 } },
        }),
      ),
    placeholderData: (old) => old,
  })
  const gaps = gapsOf(history.data ?? [])
  return (
    <Section title={t.keepalive}>
      <Facts
        facts={[
          [t.facts.agent, row && <AgentWord agent={agentOf(row)} />],
          [t.facts.backend, row?.backend],
          [t.facts.seen, moment(entity.last_seen) ?? text.never],
          [t.facts.version, entity.sensu_agent_version],
          [t.gaps, keepalive && history.isSuccess && (gaps.length === 0 ? t.noGaps : <Gaps gaps={gaps} now={now} />)],
        ]}
      />
    </Section>
  )
}

function Gaps({ gaps, now }: { gaps: ReturnType<typeof gapsOf>; now: number }) {
  return (
    <ul className={css.lines}>
      {gaps.slice(0, shown.gaps).map(({ from, until }) => (
        <li key={from}>
          <Moment at={from} /> <small>{until === undefined ? t.gapNow(span(now - from)) : t.gap(span(until - from))}</small>
        </li>
      ))}
    </ul>
  )
}

/** Silences that apply to one of its checks. */
function Silences({ namespace, events }: { namespace: string; events: EventList }) {
  const names = [...new Set(Array.from({ length: events.length }, (_, i) => events.at(i)?.silenced ?? []).flat())].sort()
  if (names.length === 0) return null
  return (
    <Section title={t.silences}>
      <ul className={css.lines}>
        {names.map((one) => (
          <li key={one}>
            <Link to="/silences" search={{ ns: namespace, silence: `${namespace}/${one}` }}>
              {one}
            </Link>
          </li>
        ))}
      </ul>
    </Section>
  )
}

/** What its agent reports of the host. */
function System({ entity }: { entity: Entity }) {
  const { system, user, deregister, depends_on, entity_class, metadata } = entity
  const f = t.facts
  const words = (...parts: (string | undefined)[]): ReactNode => parts.filter(Boolean).join(' ')
  const addresses = (system?.network?.interfaces ?? []).flatMap(({ name, addresses: of }) => (name === 'lo' ? [] : (of ?? [])))
  return (
    <Section title={t.system}>
      <Facts
        facts={[
          [f.class, entity_class],
          [f.host, system?.hostname],
          [f.os, system?.os],
          [f.platform, words(system?.platform, system?.platform_version)],
          [f.arch, system?.arch],
          [f.virtual, words(system?.vm_system, system?.vm_role)],
          [f.cloud, system?.cloud_provider],
          [f.addresses, list(addresses)],
          [f.user, user],
          [f.deregister, deregister ? t.yes : undefined],
          [f.depends, list(depends_on)],
          [f.by, metadata?.created_by],
        ]}
      />
    </Section>
  )
}

/** Who changed it, newest first. */
function Changes({ namespace, name }: { namespace: string; name: string }) {
  const { api } = useApp()
  const asked = { resource: 'entities', name }
  const query = useQuery({
    queryKey: definitionsKey('entities', 'audit', namespace, name),
    retry: false,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/audit', {
          params: { path: { namespace }, query: { ...asked, limit: shown.changes } },
        }),
      ),
  })
  return (
    <Section
      title={t.changes}
      tools={
        <Link to="/audit" search={{ ns: namespace, kind: 'entities', name }}>
          {t.allChanges}
        </Link>
      }
    >
      <QueryView query={query} rows={2}>
        {(entries) =>
          (entries ?? []).length === 0 ? (
            <p className={css.muted}>{t.noChanges}</p>
          ) : (
            <ul className={css.lines}>
              {(entries ?? []).map((entry) => (
                <li key={entry.id}>
                  <Link to="/audit" search={{ ns: namespace, kind: 'entities', name, entry: String(entry.id) }}>
                    {auditText.action[entry.action] ?? entry.action}
                  </Link>{' '}
                  {entry.user} <small>{summary(entry)}</small>
                </li>
              ))}
            </ul>
          )
        }
      </QueryView>
    </Section>
  )
}

import { Button, Group, Table, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { refusal, unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Aggregate } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { span } from '../../app/time'
import { DefinitionEditor } from '../../editor'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { servicesText as t } from '../../text/services'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { download } from '../../widgets/download'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Section } from '../../widgets/Facts'
import { FormDialog } from '../../widgets/FormDialog'
import { markOf, StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import { StateBand } from '../../widgets/StateBand'
import { done, failed } from '../../widgets/toast'
import css from './ServicesScreen.module.css'
import { anyResult, impactOf, rank, resultOf, serviceOf, servicesOf, statusOf, type Service } from './services'

const route = getRouteApi('/services')
const refresh = 5000

/** Services: what fails, and why. */
export function ServicesScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: Partial<typeof search>) => void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const { api, definitions, session } = useApp()
  const ns = search.ns ?? everywhere
  const rights = useRights(ns)
  const [making, setMaking] = useState(false)
  const aggregates = useQuery({
    queryKey: definitionsKey('aggregates', ns),
    queryFn: () => definitions.list<Aggregate & Definition>(kinds.aggregates, ns),
  })
  const events = useQuery({
    queryKey: ['service-results', ns],
    queryFn: async () => {
      const query = { labelSelector: anyResult }
      const found = await (ns === everywhere
        ? unwrap(api.GET('/api/core/v2/events', { params: { query } }))
        : unwrap(api.GET('/api/core/v2/namespaces/{namespace}/events', { params: { path: { namespace: ns }, query } })))
      return found ?? []
    },
    refetchInterval: refresh,
  })
  const services = useMemo(() => servicesOf(aggregates.data ?? [], events.data ?? []), [aggregates.data, events.data])
  const words = (search.q ?? '').toLowerCase().split(/\s+/)
  const shown = services.filter(({ key, results }) =>
    words.every((word) => `${key} ${results[0]?.output ?? ''}`.toLowerCase().includes(word)),
  )
  const open = services.find(({ key }) => key === search.service)
  const spaces = [...new Set(services.map(({ namespace }) => namespace))]
  const of = ns !== everywhere ? ns : spaces.length === 1 ? spaces[0] : undefined
  const save = () => {
    const path = `/api/lapwing/v1/namespaces/${encodeURIComponent(of ?? '')}/reports/availability`
    session
      .fetch(`${path}?${new URLSearchParams({ labelSelector: anyResult, since: '30d', format: 'csv' }).toString()}`)
      .then(async (response) => {
        if (!response.ok) throw refusal(response.status, await response.text())
        download('services.csv', await response.blob())
      })
      .catch((err: unknown) => failed(t.csvFailed, err))
  }
  const make = (
    <Button
      size="xs"
      disabled={!rights.can('create', 'aggregates')}
      title={rights.why('create', 'aggregates')}
      onClick={() => setMaking(true)}
    >
      {t.make}
    </Button>
  )
  return (
    <Screen
      title={t.title}
      flush
      bar={
        <>
          <SearchBox value={search.q ?? ''} placeholder={t.search} onChange={(q) => change({ q: q === '' ? undefined : q })} />
          <Text size="sm" c="dimmed">
            {t.summary(services.filter((one) => (statusOf(one) ?? 0) !== 0).length, services.length)}
          </Text>
          <Space />
          <Button size="xs" variant="default" disabled={of === undefined} title={of === undefined ? t.csvNeeds : undefined} onClick={save}>
            {t.csv}
          </Button>
          {make}
        </>
      }
      detail={
        open && (
          <Detail
            key={open.key}
            service={open}
            all={services}
            onOpen={(service) => change({ service })}
            onStep={(by) => change({ service: shown[shown.indexOf(open) + by]?.key ?? open.key })}
          />
        )
      }
    >
      <QueryView query={aggregates}>
        {() => (
          <>
            {events.error && (
              <Text p="xs" size="sm" c="red" role="alert">
                {text.loadFailed(events.error.message)}
              </Text>
            )}
            <DataTable
              label={t.title}
              columns={ns === everywhere ? [...columns.slice(0, 2), namespaceColumn, ...columns.slice(2)] : columns}
              rows={shown}
              keyOf={({ key }) => key}
              selected={search.service}
              onOpen={(service) => change({ service })}
              sort={search.sort ?? 'state'}
              onSort={(sort) => change({ sort: sort === 'state' ? undefined : sort })}
              empty={
                services.length === 0 ? (
                  <EmptyState title={t.empty} help={t.emptyHelp}>
                    {make}
                  </EmptyState>
                ) : (
                  <EmptyState title={t.noneFound} />
                )
              }
            />
          </>
        )}
      </QueryView>
      {making && (
        <DefinitionEditor
          kind={kinds.aggregates}
          fresh
          definition={{
            metadata: { name: 'my-service', namespace: of ?? 'default' },
            field_selector: 'event.check.name == disk',
            warning: { count: 1 },
            critical: { percent: 50 },
            interval: 30,
            result: { check: 'health', handlers: [] },
          }}
          onClose={() => setMaking(false)}
        />
      )}
    </Screen>
  )
}

const sumOf = (service: Service, field: 'failing' | 'members') => service.results.reduce((n, result) => n + result[field], 0)

const columns: Column<Service>[] = [
  {
    id: 'state',
    title: t.state,
    width: '110px',
    cell: (service) => <State status={statusOf(service)} />,
    order: (a, b) => rank(statusOf(b) ?? 0) - rank(statusOf(a) ?? 0) || a.key.localeCompare(b.key),
  },
  { id: 'name', title: t.name, width: 'minmax(120px, 1fr)', cell: ({ name }) => <b>{name}</b>, order: byText(({ name }) => name) },
  {
    id: 'failing',
    title: t.failing,
    width: '110px',
    end: true,
    cell: (service) => t.of(sumOf(service, 'failing'), sumOf(service, 'members')),
    order: byNumber((service) => -sumOf(service, 'failing')),
  },
  {
    id: 'groups',
    title: t.groups,
    width: '80px',
    end: true,
    wide: true,
    cell: ({ results }) => text.number(results.length),
    order: byNumber(({ results }) => results.length),
  },
  {
    id: 'why',
    title: t.why,
    width: 'minmax(120px, 3fr)',
    wide: true,
    cell: ({ results }) => results[0]?.output.split('\n')[0] ?? t.pending,
  },
]

const namespaceColumn: Column<Service> = {
  id: 'namespace',
  title: t.namespace,
  width: '120px',
  wide: true,
  cell: ({ namespace }) => namespace,
  order: byText(({ namespace }) => namespace),
}

function State({ status }: { status: number | undefined }) {
  if (status === undefined)
    return (
      <Text size="sm" c="dimmed">
        –
      </Text>
    )
  return (
    <span className={css.state} data-mark={markOf(status)}>
      <StatusMark mark={markOf(status)} /> {text.status(status)}
    </span>
  )
}

/** Failing members that are listed. */
const mostCauses = 50

interface DetailProps {
  service: Service
  all: readonly Service[]
  onOpen: (key: string | undefined) => void
  onStep: (by: number) => void
}

function Detail({ service, all, onOpen, onStep }: DetailProps) {
  const { definitions } = useApp()
  const { namespace, name, definition } = service
  const rights = useRights(namespace)
  const [editing, setEditing] = useState(false)
  const [deleting, setDeleting] = useState(false)
  const status = statusOf(service)
  const impact = impactOf(service, all)
  return (
    <DetailPane
      id={service.key}
      label={`${t.detail}: ${name}`}
      title={name}
      subtitle={namespace}
      mark={status === undefined ? undefined : markOf(status)}
      onClose={() => onOpen(undefined)}
      onStep={onStep}
    >
      <Group gap="sm">
        <Button
          size="xs"
          variant="default"
          disabled={!rights.can('update', 'aggregates')}
          title={rights.why('update', 'aggregates')}
          onClick={() => setEditing(true)}
        >
          {text.edit}
        </Button>
        <Button
          size="xs"
          variant="default"
          disabled={!rights.can('delete', 'aggregates')}
          title={rights.why('delete', 'aggregates')}
          onClick={() => setDeleting(true)}
        >
          {text.delete}
        </Button>
      </Group>
      <Evaluation service={service} />
      <Causes service={service} onOpen={onOpen} />
      <Section title={t.impact}>
        {impact.length === 0 ? (
          <Text size="sm" c="dimmed">
            {t.noImpact}
          </Text>
        ) : (
          <ul className={css.list}>
            {impact.map((other) => (
              <li key={other.key}>
                <State status={statusOf(other)} />
                <button type="button" onClick={() => onOpen(other.key)}>
                  {other.name}
                </button>
              </li>
            ))}
          </ul>
        )}
      </Section>
      <Availability namespace={namespace} selector={resultOf(name)} />
      <Section title={t.definition}>
        <Facts
          facts={[
            [t.selects, definition.field_selector ? <code>{definition.field_selector}</code> : undefined],
            [t.labels, definition.label_selector ? <code>{definition.label_selector}</code> : undefined],
            [t.groups, definition.group_by ? <code>{definition.group_by}</code> : undefined],
            [t.fails, definition.failing ? <code>{definition.failing}</code> : t.failsDefault],
            [t.warning, thresholdOf(definition.warning)],
            [t.critical, thresholdOf(definition.critical)],
            [t.interval, definition.interval ? text.duration(definition.interval) : undefined],
          ]}
        />
      </Section>
      {editing && <DefinitionEditor kind={kinds.aggregates} definition={{ ...definition }} onClose={() => setEditing(false)} />}
      {deleting && (
        <Delete
          name={name}
          namespace={namespace}
          undo={() => definitions.create(kinds.aggregates, { ...definition })}
          onClose={(gone) => {
            setDeleting(false)
            if (gone) onOpen(undefined)
          }}
        />
      )}
    </DetailPane>
  )
}

function thresholdOf(threshold: Aggregate['warning']): string | undefined {
  return threshold ? t.threshold(threshold.percent ?? 0, threshold.count ?? 0) : undefined
}

const worstFirst = <T extends { status: number }>(groups: readonly T[]) => [...groups].sort((a, b) => rank(b.status) - rank(a.status))

/** What the aggregate would find at this moment, of each group. */
function Evaluation({ service: { namespace, name } }: { service: Service }) {
  const { api } = useApp()
  const evaluation = useQuery({
    queryKey: ['service-evaluation', namespace, name],
    queryFn: () =>
      unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/aggregates/{name}/evaluation', { params: { path: { namespace, name } } })),
    refetchInterval: refresh,
  })
  return (
    <Section title={t.evaluation}>
      <QueryView query={evaluation} rows={2}>
        {(groups) =>
          (groups ?? []).length === 0 ? (
            <Text size="sm" c="dimmed">
              {t.noGroups}
            </Text>
          ) : (
            <div className={css.scroll} role="region" aria-label={t.evaluation} tabIndex={0}>
              <Table verticalSpacing={4} fz="xs">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t.state}</Table.Th>
                    <Table.Th>{t.group}</Table.Th>
                    <Table.Th ta="right">{t.failing}</Table.Th>
                    <Table.Th ta="right">{t.percent}</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {worstFirst(groups ?? []).map(({ group = '', entity, check, status, failing, members, percent }) => (
                    <Table.Tr key={`${entity}/${check}`}>
                      <Table.Td>
                        <State status={status} />
                      </Table.Td>
                      <Table.Td>
                        <Link to="/events" search={{ ns: namespace, event: `${namespace}/${entity}/${check}` }}>
                          {group || entity}
                        </Link>
                      </Table.Td>
                      <Table.Td ta="right">{t.of(failing, members)}</Table.Td>
                      <Table.Td ta="right">{percent.toFixed(1)} %</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          )
        }
      </QueryView>
    </Section>
  )
}

/** The members that fail. One that is itself a service opens that. */
function Causes({ service: { namespace, name, definition }, onOpen }: { service: Service; onOpen: (key: string) => void }) {
  const { api } = useApp()
  const unsilenced = definition.ignore_silenced ? 'event.is_silenced == false' : ''
  const terms = [definition.field_selector ?? '', definition.failing || 'event.check.status != 0', unsilenced]
  const fieldSelector = terms
    .filter((term) => term !== '')
    .map((term) => `(${term})`)
    .join(' && ')
  const labelSelector = definition.label_selector ?? ''
  const members = useQuery({
    queryKey: ['service-causes', namespace, fieldSelector, labelSelector],
    queryFn: () =>
      unwrap(
        api.GET('/api/core/v2/namespaces/{namespace}/events', {
          params: { path: { namespace }, query: { fieldSelector, ...(labelSelector === '' ? {} : { labelSelector }), limit: mostCauses } },
        }),
      ),
    refetchInterval: refresh,
  })
  return (
    <Section title={t.causes}>
      <QueryView query={members} rows={2}>
        {(found) => {
          const causes = (found ?? []).filter((event) => serviceOf(event) !== name)
          if (causes.length === 0)
            return (
              <Text size="sm" c="dimmed">
                {t.noCauses}
              </Text>
            )
          return (
            <>
              <ul className={css.list}>
                {causes.map((event) => {
                  const entity = event.entity?.metadata?.name ?? ''
                  const check = event.check?.metadata?.name ?? ''
                  const service = serviceOf(event)
                  return (
                    <li key={`${entity}/${check}`}>
                      <State status={event.check?.status ?? 0} />
                      {service === undefined ? (
                        <Link to="/events" search={{ ns: namespace, event: `${namespace}/${entity}/${check}` }}>
                          {entity}/{check}
                        </Link>
                      ) : (
                        <button type="button" onClick={() => onOpen(`${namespace}/${service}`)}>
                          {entity}/{check}
                        </button>
                      )}
                      <span>{event.check?.output?.split('\n')[0]}</span>
                    </li>
                  )
                })}
              </ul>
              {causes.length >= mostCauses && (
                <Text size="xs" c="dimmed">
                  {t.moreCauses(mostCauses)}
                </Text>
              )}
            </>
          )
        }}
      </QueryView>
    </Section>
  )
}

const periods = ['24h', '7d', '30d', 'this', 'last'] as const

/** The uptime of the service's results in several times. */
function Availability({ namespace, selector }: { namespace: string; selector: string }) {
  const { api } = useApp()
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const reports = useQuery({
    queryKey: ['service-availability', namespace, selector],
    queryFn: () =>
      Promise.all(
        periods.map((period) =>
          unwrap(
            api.GET('/api/lapwing/v1/namespaces/{namespace}/reports/availability', {
              params: {
                path: { namespace },
                query: {
                  labelSelector: selector,
                  limit: 1,
                  ...(period === 'this' || period === 'last' ? { month: period, zone } : { since: period }),
                },
              },
            }),
          ),
        ),
      ),
    refetchInterval: 60_000,
  })
  return (
    <Section title={t.availability}>
      <QueryView query={reports} rows={3}>
        {(found) => (
          <div className={css.scroll} role="region" aria-label={t.availability} tabIndex={0}>
            <Table verticalSpacing={4} fz="xs">
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t.period}</Table.Th>
                  <Table.Th ta="right">{t.up}</Table.Th>
                  <Table.Th ta="right">{t.down}</Table.Th>
                  <Table.Th ta="right">{t.incidents}</Table.Th>
                  <Table.Th w="40%">{t.band}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {found.map(({ total, since, until }, i) => (
                  <Table.Tr key={periods[i]}>
                    <Table.Td>{t.periods[periods[i] ?? '24h']}</Table.Td>
                    <Table.Td ta="right">{total.uptime_ppm === null ? t.noData : text.uptime(total.uptime_ppm)}</Table.Td>
                    <Table.Td ta="right">
                      {span((total.warning_ms + total.critical_ms + total.unknown_ms + total.missing_ms) / 1000)}
                    </Table.Td>
                    <Table.Td ta="right">{text.number(total.incidents + total.carried)}</Table.Td>
                    <Table.Td>
                      {total.band !== '' && <StateBand band={total.band} seconds={(Date.parse(until) - Date.parse(since)) / 1000} />}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </QueryView>
    </Section>
  )
}

interface DeleteProps {
  namespace: string
  name: string
  undo: () => Promise<unknown>
  onClose: (gone: boolean) => void
}

function Delete({ namespace, name, undo, onClose }: DeleteProps) {
  const { definitions } = useApp()
  const would = useQuery({
    queryKey: ['delete-service', namespace, name],
    queryFn: () => definitions.delete(kinds.aggregates, namespace, name, true),
    retry: false,
    staleTime: 0,
  })
  const act = useMutation({
    mutationFn: () => definitions.delete(kinds.aggregates, namespace, name),
    onSuccess: () => {
      done(t.deleted(name), undo)
      onClose(true)
    },
  })
  return (
    <FormDialog
      opened
      title={t.deleteTitle(name)}
      onClose={() => onClose(false)}
      act={act}
      label={text.delete}
      danger
      disabled={!would.isSuccess}
    >
      <Text size="sm">{t.deleteHelp}</Text>
      <Text size="sm" c="dimmed" role="status">
        {would.error ? would.error.message : would.data ? would.data.warnings.join(' ') : text.editor.asking}
      </Text>
    </FormDialog>
  )
}

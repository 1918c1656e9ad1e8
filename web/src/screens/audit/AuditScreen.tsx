import { Button, Select, TextInput } from '@mantine/core'
import { useDebouncedCallback } from '@mantine/hooks'
import { useInfiniteQuery, type UseQueryResult } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import type { AuditEntry } from '../../api/types'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { Moment } from '../../app/time'
import { DiffView } from '../../editor/DiffView'
import { text } from '../../text'
import { auditText as t } from '../../text/audit'
import { CopyButton } from '../../widgets/CopyButton'
import { DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Section } from '../../widgets/Facts'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import css from './AuditScreen.module.css'
import { changesOf, summary } from './present'
import { asked, type AuditSearch } from './search'

const route = getRouteApi('/audit')

/** Entries that one request brings. */
const page = 200

const kindNames = [...Object.keys(kinds), 'users', 'apikeys', 'namespaces', 'events', 'cluster', 'deadletters', 'authproviders'].sort()

/** Every change with its author, newest first. */
export function AuditScreen() {
  const { api } = useApp()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: { [K in keyof AuditSearch]?: string | undefined }) =>
    void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const { ns = everywhere } = search
  const filters = asked(search)
  const query = useInfiniteQuery({
    queryKey: ['audit', ns, filters],
    queryFn: async ({ pageParam }) => {
      const params = { ...filters, limit: page, ...(pageParam === '' ? {} : { continue: pageParam }) }
      const call = await (ns === everywhere
        ? api.GET('/api/lapwing/v1/audit', { params: { query: params } })
        : api.GET('/api/lapwing/v1/namespaces/{namespace}/audit', { params: { path: { namespace: ns }, query: params } }))
      const entries = await unwrap(Promise.resolve(call))
      return { entries: entries ?? [], next: call.response.headers.get('Sensu-Continue') ?? '' }
    },
    initialPageParam: '',
    getNextPageParam: ({ next }) => next || undefined,
    placeholderData: (old) => old,
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) <= 1 ? 10_000 : false), // what was loaded further stays as it was
    retry: false,
  })
  const rows = query.data?.pages.flatMap(({ entries }) => entries) ?? []
  const open = rows.find(({ id }) => String(id) === search.entry)
  const step = (by: number) => {
    const next = rows[rows.findIndex(({ id }) => String(id) === search.entry) + by]
    if (next) change({ entry: String(next.id) })
  }
  const filtered = Object.keys(filters).length > 0
  const clear = () => change({ user: undefined, kind: undefined, name: undefined, action: undefined, since: undefined, until: undefined })
  return (
    <Screen
      title={t.title}
      flush
      bar={
        <>
          <Words label={t.filters.user} value={search.user} onChange={(user) => change({ user })} />
          <Select
            size="xs"
            w={140}
            searchable
            clearable
            aria-label={t.filters.kind}
            placeholder={t.filters.kind}
            data={search.kind && !kindNames.includes(search.kind) ? [...kindNames, search.kind] : kindNames}
            value={search.kind ?? null}
            onChange={(kind) => change({ kind: kind ?? undefined })}
          />
          <Words label={t.filters.name} value={search.name} onChange={(name) => change({ name })} />
          <Select
            size="xs"
            w={135}
            aria-label={t.filters.action}
            data={t.actions}
            value={search.action ?? ''}
            allowDeselect={false}
            onChange={(action) => change({ action: action || undefined })}
          />
          <Select
            size="xs"
            w={130}
            aria-label={t.filters.since}
            allowDeselect={false}
            value={search.since ?? ''}
            onChange={(since) => change({ since: since || undefined })}
            data={
              search.since && !t.times.some(({ value }) => value === search.since)
                ? [...t.times, { value: search.since, label: search.since }]
                : t.times
            }
          />
          <Space />
          {filtered && (
            <Button size="compact-sm" variant="subtle" onClick={clear}>
              {t.clear}
            </Button>
          )}
        </>
      }
      detail={
        search.entry !== undefined &&
        query.isSuccess && <Detail id={search.entry} entry={open} onClose={() => change({ entry: undefined })} onStep={step} />
      }
    >
      <QueryView query={query as unknown as UseQueryResult<unknown>}>
        {() => (
          <>
            <DataTable
              label={t.title}
              columns={ns === everywhere ? columns : columns.filter(({ id }) => id !== 'namespace')}
              rows={rows}
              keyOf={({ id }) => String(id)}
              selected={search.entry}
              onOpen={(entry) => change({ entry })}
              empty={<EmptyState title={filtered ? t.nothing : t.empty} help={filtered ? t.nothingHelp : t.emptyHelp} />}
            />
            {rows.length > 0 && (
              <div className={css.foot}>
                {query.hasNextPage ? (
                  <Button size="xs" variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                    {t.older}
                  </Button>
                ) : (
                  t.oldest
                )}
              </div>
            )}
          </>
        )}
      </QueryView>
    </Screen>
  )
}

/** A filter by words, which count when the typing stops. */
function Words({ label, value, onChange }: { label: string; value: string | undefined; onChange: (value: string | undefined) => void }) {
  const [typed, setTyped] = useState(value ?? '')
  const [before, setBefore] = useState(value)
  if (value !== before) {
    // the address has changed
    setBefore(value)
    setTyped(value ?? '')
  }
  const settle = useDebouncedCallback((next: string) => onChange(next.trim() || undefined), 400)
  return (
    <TextInput
      size="xs"
      w={130}
      aria-label={label}
      placeholder={label}
      value={typed}
      spellCheck={false}
      onChange={(event) => {
        setTyped(event.currentTarget.value)
        settle(event.currentTarget.value)
      }}
    />
  )
}

const columns: Column<AuditEntry>[] = [
  { id: 'time', title: t.columns.time, width: '215px', cell: ({ time }) => <Moment at={Date.parse(time) / 1000} /> },
  { id: 'user', title: t.columns.user, width: 'minmax(80px, 1fr)', cell: ({ user }) => user },
  { id: 'action', title: t.columns.action, width: '84px', wide: true, cell: ({ action }) => t.action[action] ?? action },
  { id: 'kind', title: t.columns.kind, width: 'minmax(80px, 1fr)', wide: true, cell: ({ resource }) => resource },
  { id: 'namespace', title: t.columns.namespace, width: '110px', wide: true, cell: ({ namespace }) => namespace },
  { id: 'name', title: t.columns.name, width: 'minmax(100px, 1.5fr)', cell: ({ name }) => name },
  {
    id: 'what',
    title: t.columns.what,
    width: 'minmax(100px, 2fr)',
    wide: true,
    cell: (entry) => <span className={css.paths}>{summary(entry)}</span>,
  },
]

interface DetailProps {
  id: string
  /** undefined if it is not loaded. */
  entry: AuditEntry | undefined
  onClose: () => void
  onStep: (by: number) => void
}

function Detail({ id, entry, onClose, onStep }: DetailProps) {
  if (!entry) {
    return (
      <DetailPane id={id} label={t.detail} title={`${t.detail} ${id}`} onClose={onClose}>
        <EmptyState title={text.missing} help={t.notLoaded} />
      </DetailPane>
    )
  }
  const { resource, name, namespace, user, remote, request } = entry
  const changes = changesOf(entry)
  const ns = namespace ? { ns: namespace } : {}
  return (
    <DetailPane
      id={id}
      label={`${t.detail}: ${resource} ${name}`}
      title={name || resource}
      subtitle={[t.action[entry.action] ?? entry.action, resource, namespace].filter(Boolean).join(' · ')}
      tools={<CopyButton value={() => location.href} label={t.link} />}
      onClose={onClose}
      onStep={onStep}
    >
      <Facts
        facts={[
          [t.facts.when, <Moment at={Date.parse(entry.time) / 1000} />],
          [t.facts.who, user],
          [t.facts.from, remote],
          [t.facts.request, request && <code>{request}</code>],
          [t.facts.id, String(entry.id)],
        ]}
      />
      <p className={css.links}>
        <Link to="/audit" search={{ ...ns, kind: resource, name }}>
          {t.history}
        </Link>
        {resource in kinds && (
          <Link to="/config" search={{ ...ns, kind: resource, open: `${namespace ?? ''}/${name}` }}>
            {t.open}
          </Link>
        )}
      </p>
      {changes.length === 0 && <p>{t.noChanges}</p>}
      {changes.map(({ path, before, after }) => (
        <Section key={path} title={path === '' ? t.whole : <span className={css.paths}>{path}</span>}>
          <DiffView before={before} after={after} />
        </Section>
      ))}
    </DetailPane>
  )
}

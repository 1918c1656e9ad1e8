import { Button, Select } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo } from 'react'
import { unwrap } from '../../api/client'
import { kinds, type Definition, type Kind } from '../../api/definitions'
import type { LintFinding } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { DefinitionEditor } from '../../editor'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { configText as t } from '../../text/config'
import { byText, DataTable, type Column } from '../../widgets/DataTable'
import { DeleteDefinition } from '../../widgets/DeleteDefinition'
import { EmptyState } from '../../widgets/EmptyState'
import { StatusMark, type Mark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import css from './ConfigScreen.module.css'
import { DefinitionDetail } from './DefinitionDetail'
import { Dump } from './Dump'
import { Import } from './Import'
import type { ConfigSearch } from './search'
import { starter } from './starter'

const route = getRouteApi('/config')

/** Definitions that are listed at most; entities may be many more. */
const most = 10_000

const all: Record<string, Kind> = kinds

export const keyOf = ({ metadata }: Definition): string => `${metadata?.namespace ?? ''}/${metadata?.name ?? ''}`

/** All definitions as they are stored, by their kind. */
export function ConfigScreen() {
  const { definitions } = useApp()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: { [K in keyof ConfigSearch]?: string | undefined }) =>
    void navigate({ search: (before) => ({ ...before, ...part }), replace: true })
  const namespace = search.ns ?? everywhere
  const view = search.kind ?? 'checks'
  const kind = all[view]
  const rights = useRights(namespace)
  const query = useQuery({
    queryKey: definitionsKey(kind?.role ?? '', namespace),
    enabled: kind !== undefined,
    queryFn: () => definitions.list(kind as Kind, namespace, { limit: String(most) }),
    retry: false,
  })
  const rows = useMemo(() => found(query.data ?? [], search.q ?? ''), [query.data, search.q])
  const open = search.open === undefined ? undefined : (query.data ?? []).find((one) => keyOf(one) === search.open)
  const close = () => change({ act: undefined })
  const step = (by: number) => {
    const next = rows[rows.findIndex((one) => keyOf(one) === search.open) + by]
    if (next) change({ open: keyOf(next) })
  }
  const why = kind && rights.why('create', kind.role)
  const to = namespace === everywhere ? 'default' : namespace
  const make = kind && (
    <Button size="xs" disabled={why !== undefined} title={why} onClick={() => change({ act: 'new' })}>
      {t.new}
    </Button>
  )
  const draft = useMemo(() => (kind ? starter(kind, to) : undefined), [kind, to])
  return (
    <Screen
      title={t.title}
      flush={view !== 'import'}
      bar={
        <>
          <Select
            size="xs"
            w={190}
            searchable
            allowDeselect={false}
            aria-label={t.kinds}
            value={view}
            data={[
              ...Object.keys(kinds)
                .map((value) => ({ value, label: t.kindNames[value] ?? value }))
                .sort((a, b) => a.label.localeCompare(b.label)),
              { value: 'findings', label: t.findings },
              { value: 'import', label: t.import },
            ]}
            onChange={(next) => change({ kind: next ?? undefined, open: undefined, sort: undefined, act: undefined })}
          />
          {kind && <SearchBox value={search.q ?? ''} placeholder={t.search} onChange={(q) => change({ q: q === '' ? undefined : q })} />}
          {kind && query.isSuccess && <span className={css.muted}>{t.shown(rows.length, query.data.length)}</span>}
          <Space />
          <Button size="xs" variant="default" onClick={() => change({ kind: 'findings', open: undefined })}>
            {t.findings}
          </Button>
          <Button size="xs" variant="default" onClick={() => change({ kind: 'import', open: undefined })}>
            {t.import}
          </Button>
          <Button size="xs" variant="default" onClick={() => change({ act: 'dump' })}>
            {t.dump}
          </Button>
          {make}
        </>
      }
      detail={
        kind &&
        search.open !== undefined &&
        query.isSuccess && (
          <DefinitionDetail
            kind={kind}
            target={search.open}
            definition={open}
            onClose={() => change({ open: undefined })}
            onStep={step}
            onAct={(act) => change({ act })}
          />
        )
      }
    >
      {view === 'import' ? (
        <Import namespace={to} />
      ) : view === 'findings' ? (
        <Findings
          namespace={namespace}
          onOpen={(finding) => change({ kind: finding.resource, open: `${finding.namespace ?? ''}/${finding.name}` })}
        />
      ) : kind ? (
        <QueryView query={query}>
          {() => (
            <DataTable
              label={t.kindNames[view] ?? view}
              columns={namespace === everywhere && kind.namespaced ? columns : columns.filter(({ id }) => id !== 'namespace')}
              rows={rows}
              keyOf={keyOf}
              selected={search.open}
              onOpen={(key) => change({ open: key })}
              sort={search.sort}
              onSort={(sort) => change({ sort })}
              empty={
                query.data?.length === 0 ? (
                  <EmptyState title={t.empty(t.kindNames[view] ?? view)} help={t.emptyHelp}>
                    {make}
                  </EmptyState>
                ) : (
                  <EmptyState title={t.nothing} help={t.nothingHelp} />
                )
              }
            />
          )}
        </QueryView>
      ) : (
        <EmptyState title={text.missing} help={view} />
      )}
      {search.act === 'dump' && <Dump namespace={namespace} kind={kind} onClose={close} />}
      {kind && draft && search.act === 'new' && why === undefined && (
        <DefinitionEditor kind={kind} definition={draft} fresh onClose={close} />
      )}
      {kind && open && search.act === 'edit' && <DefinitionEditor kind={kind} definition={open} onClose={close} />}
      {kind && open && search.act === 'delete' && (
        <DeleteDefinition
          kind={kind}
          definition={open}
          onClose={(deleted) => change({ act: undefined, ...(deleted ? { open: undefined } : {}) })}
        />
      )}
    </Screen>
  )
}

/** Those that have all words in their text. */
function found(list: readonly Definition[], q: string): readonly Definition[] {
  const words = q
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '')
  if (words.length === 0) return list
  return list.filter((one) => {
    const whole = JSON.stringify(one).toLowerCase()
    return words.every((word) => whole.includes(word))
  })
}

const labels = ({ metadata }: Definition): string =>
  Object.entries(metadata?.labels ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join(', ')

const columns: Column<Definition>[] = [
  {
    id: 'name',
    title: t.columns.name,
    width: 'minmax(160px, 2fr)',
    order: byText(({ metadata }) => metadata?.name ?? ''),
    cell: ({ metadata }) => metadata?.name,
  },
  {
    id: 'namespace',
    title: t.columns.namespace,
    width: 'minmax(90px, 1fr)',
    order: byText(({ metadata }) => metadata?.namespace ?? ''),
    cell: ({ metadata }) => metadata?.namespace,
  },
  { id: 'labels', title: t.columns.labels, width: 'minmax(90px, 2fr)', wide: true, order: byText(labels), cell: labels },
  {
    id: 'by',
    title: t.columns.by,
    width: 'minmax(80px, 1fr)',
    wide: true,
    order: byText(({ metadata }) => metadata?.created_by ?? ''),
    cell: ({ metadata }) => metadata?.created_by,
  },
]

const marks: Record<string, Mark> = { warning: 'warning', note: 'ok', unseen: 'unknown' }

/** What is doubtful in all that is stored. */
function Findings({ namespace, onOpen }: { namespace: string; onOpen: (finding: LintFinding) => void }) {
  const { api } = useApp()
  const query = useQuery({
    queryKey: ['lint', namespace],
    queryFn: async () => (await unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/lint', { params: { path: { namespace } } }))) ?? [],
    refetchInterval: 30_000,
    retry: false,
  })
  const keyOf = (one: LintFinding) => `${one.resource}/${one.namespace ?? ''}/${one.name}/${one.text}`
  return (
    <QueryView query={query}>
      {(findings) => (
        <DataTable
          label={t.findings}
          columns={findingColumns}
          rows={findings}
          keyOf={keyOf}
          onOpen={(key) => {
            const finding = findings.find((one) => keyOf(one) === key)
            if (finding && finding.resource in kinds) onOpen(finding)
          }}
          empty={<EmptyState title={t.noFindings} help={t.noFindingsHelp} />}
        />
      )}
    </QueryView>
  )
}

const findingColumns: Column<LintFinding>[] = [
  {
    id: 'severity',
    title: t.columns.severity,
    width: '110px',
    cell: ({ severity }) => (
      <span className={css.severity}>
        <StatusMark mark={marks[severity] ?? 'unknown'} /> {t.severity[severity] ?? severity}
      </span>
    ),
  },
  { id: 'kind', title: t.columns.kind, width: '110px', wide: true, cell: ({ kind }) => kind },
  { id: 'namespace', title: t.columns.namespace, width: '110px', wide: true, cell: ({ namespace }) => namespace },
  { id: 'name', title: t.columns.name, width: 'minmax(100px, 1fr)', cell: ({ name }) => name },
  {
    id: 'text',
    title: t.columns.text,
    width: 'minmax(140px, 3fr)',
    cell: ({ text, hint }) => <span title={hint ? `${text}\n${hint}` : text}>{text}</span>,
  },
]

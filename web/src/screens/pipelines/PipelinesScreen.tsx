import { Button, SegmentedControl } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useState } from 'react'
import { kinds, type Definition } from '../../api/definitions'
import type { EventFilter, Handler, Mutator, Pipeline } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { DefinitionEditor } from '../../editor'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text/pipelines'
import { byText, DataTable, type Column } from '../../widgets/DataTable'
import { EmptyState } from '../../widgets/EmptyState'
import { StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import { DefinitionPane } from './DefinitionPane'
import { flowOfHandler, flowsOf, missingIn, type Known } from './flow'
import css from './Pipelines.module.css'
import { tabs, type PipelinesSearch, type PipelinesTab } from './search'

const route = getRouteApi('/pipelines')

/** What a new definition begins with. */
const templates: Record<PipelinesTab, Definition> = {
  pipelines: {
    workflows: [
      {
        name: 'alerts',
        filters: [
          { name: 'is_incident', type: 'EventFilter', api_version: 'core/v2' },
          { name: 'not_silenced', type: 'EventFilter', api_version: 'core/v2' },
        ],
        handler: { name: '', type: 'Handler', api_version: 'core/v2' },
      },
    ],
  },
  handlers: { type: 'pipe', command: '', filters: ['is_incident', 'not_silenced'] },
  filters: { action: 'allow', expressions: ['event.check.occurrences == 3'] },
  mutators: { type: 'javascript', eval: 'return JSON.stringify({ entity: event.entity.metadata.name })' },
}

/** The ways of events to handlers, and what they are made of. */
export function PipelinesScreen() {
  const { definitions } = useApp()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (to: { [K in keyof PipelinesSearch]?: PipelinesSearch[K] }) =>
    void navigate({ search: (all) => ({ ...all, ...to }), replace: true })
  const { tab = 'pipelines', ns: namespace = everywhere, open } = search
  const rights = useRights(namespace)
  const [making, setMaking] = useState(false)
  const query = useQuery({
    queryKey: definitionsKey(tab, namespace),
    queryFn: () => definitions.list(kinds[tab], namespace),
  })
  const known = useKnown(namespace)
  return (
    <Screen
      title={text.title}
      flush
      bar={
        <>
          <SegmentedControl
            size="xs"
            aria-label={text.which}
            value={tab}
            data={tabs.map((value) => ({ value, label: text.tabs[value] }))}
            onChange={(to) => change({ tab: to === 'pipelines' ? undefined : (to as PipelinesTab), open: undefined, sort: undefined })}
          />
          <Space />
          <Button size="xs" disabled={!rights.can('create', tab)} title={rights.why('create', tab)} onClick={() => setMaking(true)}>
            {text.make[tab]}
          </Button>
        </>
      }
      detail={open !== undefined && <DefinitionPane key={tab} tab={tab} open={open} search={search} change={change} knownIn={known} />}
    >
      <QueryView query={query}>
        {(rows) => (
          <DataTable
            label={text.tabs[tab]}
            columns={columnsOf(tab, namespace === everywhere, known)}
            rows={rows}
            keyOf={keyOf}
            selected={open}
            onOpen={(to) => change({ open: to })}
            sort={search.sort}
            onSort={(sort) => change({ sort })}
            empty={
              <EmptyState title={text.none[tab]} help={text.help[tab]}>
                <Button disabled={!rights.can('create', tab)} title={rights.why('create', tab)} onClick={() => setMaking(true)}>
                  {text.make[tab]}
                </Button>
              </EmptyState>
            }
          />
        )}
      </QueryView>
      {making && (
        <DefinitionEditor
          kind={kinds[tab]}
          fresh
          definition={{ ...templates[tab], metadata: { name: '', namespace: namespace === everywhere ? 'default' : namespace } }}
          onClose={() => setMaking(false)}
        />
      )}
    </Screen>
  )
}

const keyOf = ({ metadata }: Definition) => `${metadata?.namespace ?? ''}/${metadata?.name ?? ''}`

/** What is defined in each namespace. */
function useKnown(namespace: string): (of: string) => Known {
  const { definitions } = useApp()
  const ask = (kind: 'filters' | 'mutators' | 'handlers') => ({
    queryKey: definitionsKey(kind, namespace),
    queryFn: () => definitions.list(kinds[kind], namespace),
    retry: false,
  })
  const filters = useQuery(ask('filters'))
  const mutators = useQuery(ask('mutators'))
  const handlers = useQuery(ask('handlers'))
  return (of) => {
    if (!filters.data || !mutators.data || !handlers.data) return undefined
    const names = (list: readonly Definition[]) =>
      new Set(list.filter(({ metadata }) => metadata?.namespace === of).map(({ metadata }) => metadata?.name ?? ''))
    return { filters: names(filters.data), mutators: names(mutators.data), handlers: names(handlers.data) }
  }
}

/** What a handler or a mutator runs or calls. */
function whatOf({ command, webhook, socket, handlers, eval: script }: Handler & Mutator): string {
  return command || webhook?.url || (socket?.host ? `${socket.host}:${socket.port}` : '') || (handlers ?? []).join(', ') || (script ?? '')
}

function columnsOf(tab: PipelinesTab, all: boolean, knownIn: (namespace: string) => Known): Column<Definition>[] {
  const c = text.columns
  const name: Column<Definition> = {
    id: 'name',
    title: c.name,
    width: 'minmax(120px, 1.2fr)',
    order: byText((row) => row.metadata?.name ?? ''),
    cell: (row) => row.metadata?.name,
  }
  const first = [
    name,
    ...(all
      ? [
          {
            id: 'namespace',
            title: c.namespace,
            wide: true,
            order: byText((row: Definition) => row.metadata?.namespace ?? ''),
            cell: (row: Definition) => row.metadata?.namespace,
          },
        ]
      : []),
  ]
  const missing = (flows: ReturnType<typeof flowsOf>) => {
    const n = missingIn(flows)
    return n === 0 ? null : (
      <span className={css.missing}>
        <StatusMark mark="critical" size={14} /> {text.missing(n)}
      </span>
    )
  }
  const known = (row: Definition) => knownIn(row.metadata?.namespace ?? '')
  switch (tab) {
    case 'pipelines':
      return [
        ...first,
        {
          id: 'workflows',
          title: c.workflows,
          width: 'minmax(0, 1.5fr)',
          cell: (row) => ((row as Pipeline).workflows ?? []).map((one) => one.name).join(', '),
        },
        {
          id: 'handlers',
          title: c.handlers,
          width: 'minmax(0, 1.5fr)',
          wide: true,
          cell: (row) => [...new Set(((row as Pipeline).workflows ?? []).map((one) => one.handler?.name))].join(', '),
        },
        { id: 'missing', title: '', width: '180px', cell: (row) => missing(flowsOf(row as Pipeline, known(row))) },
      ]
    case 'handlers':
      return [
        ...first,
        {
          id: 'type',
          title: c.type,
          width: '110px',
          order: byText((row) => (row as Handler).type ?? ''),
          cell: (row) => (row as Handler).type,
        },
        { id: 'what', title: c.what, width: 'minmax(0, 2fr)', mono: true, cell: (row) => whatOf(row as Handler) },
        { id: 'filters', title: c.filters, wide: true, cell: (row) => ((row as Handler).filters ?? []).join(', ') },
        { id: 'missing', title: '', width: '180px', wide: true, cell: (row) => missing(flowOfHandler(row as Handler, known(row))) },
      ]
    case 'filters':
      return [
        ...first,
        {
          id: 'action',
          title: c.action,
          width: '80px',
          order: byText((row) => (row as EventFilter).action ?? ''),
          cell: (row) => (row as EventFilter).action,
        },
        {
          id: 'expressions',
          title: c.expressions,
          width: 'minmax(0, 3fr)',
          mono: true,
          cell: (row) => ((row as EventFilter).expressions ?? []).join(' && '),
        },
      ]
    case 'mutators':
      return [
        ...first,
        {
          id: 'type',
          title: c.type,
          width: '110px',
          order: byText((row) => (row as Mutator).type ?? ''),
          cell: (row) => (row as Mutator).type || 'pipe',
        },
        { id: 'what', title: c.what, width: 'minmax(0, 3fr)', mono: true, cell: (row) => whatOf(row as Mutator) },
      ]
  }
}

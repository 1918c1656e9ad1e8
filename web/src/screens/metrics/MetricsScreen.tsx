import { ActionIcon, Alert, Button, Group, Pill, SegmentedControl, Select, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { unwrap } from '../../api/client'
import { align, graphiteFunctions, render, renderAs, shortValue, type MetricSeries, type Rendering } from '../../api/graphite'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { boundsOf, parseRange, writeBounds } from '../../app/range'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { clock } from '../../app/time'
import { quoted } from '../../search/query'
import { metricsText as t } from '../../text/metrics'
import { CopyButton } from '../../widgets/CopyButton'
import { DataTable, type Column } from '../../widgets/DataTable'
import { download } from '../../widgets/download'
import { EmptyState } from '../../widgets/EmptyState'
import { Icon } from '../../widgets/icons'
import { Plot } from '../../widgets/Plot'
import { QueryView } from '../../widgets/QueryView'
import { RangeControl } from '../../widgets/RangeControl'
import { Panel, Screen, Space } from '../../widgets/Screen'
import { failed } from '../../widgets/toast'
import { Band, useStates } from '../events/Timeline'
import { Finder } from './Finder'
import { FunctionDialog } from './FunctionDialog'
import { Legend } from './Legend'
import { MetricCheckDialog } from './MetricCheckDialog'
import css from './MetricsScreen.module.css'
import { chainOf, targetOf } from './target'

const route = getRouteApi('/explore')
const initialTime = '1d'
const sync = 'metrics'
/** Lines that are drawn at most: as many as can be told apart. */
const mostLines = 24
/** Points of a line that are drawn. */
const points = 600

/** Finds stored metrics, and shows them over time. All of it is in the address. */
export function MetricsScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const { session } = useApp()
  const change = (part: Partial<typeof search>) => void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const targets = search.target ?? []
  const setTargets = (next: readonly string[]) => {
    const filled = next.filter((one) => one.trim() !== '')
    change({ target: filled.length > 0 ? filled : undefined })
  }
  const add = (target: string) => {
    if (!targets.includes(target)) setTargets([...targets, target])
  }
  const time = parseRange(search.time) ? (search.time as string) : initialTime
  const range = parseRange(time) ?? { last: 86_400 }
  const [alerting, setAlerting] = useState(false)
  const namespace = search.ns === undefined || search.ns === everywhere ? 'default' : search.ns
  const rights = useRights(namespace)
  const query = useQuery({
    queryKey: ['metrics', targets, time],
    enabled: targets.length > 0,
    retry: false,
    queryFn: async () => {
      const { from, until } = boundsOf(range, Date.now() / 1000)
      return { from, until, series: await render(session.fetch, { targets, from, until, points }) }
    },
    placeholderData: keepPreviousData,
    refetchInterval: 'last' in range ? 10_000 : false,
  })
  const save = (format: 'png' | 'csv') => {
    const rendering: Rendering = { targets, ...boundsOf(range, Date.now() / 1000) }
    renderAs(session.fetch, format, rendering, format === 'png' ? { width: '1200', height: '600' } : {})
      .then(async (response) => download(`metrics.${format}`, await response.blob()))
      .catch((err: unknown) => failed(t.downloadFailed, err))
  }
  const none = targets.length === 0
  return (
    <Screen
      title={t.title}
      bar={
        <>
          <RangeControl value={search.time} initial={initialTime} onChange={(next) => change({ time: next })} />
          <SegmentedControl
            size="xs"
            aria-label={t.view}
            value={search.view ?? 'plot'}
            data={t.views}
            onChange={(view) => change({ view: view === 'plot' ? undefined : view })}
          />
          <Space />
          <Group gap={6}>
            <CopyButton value={() => location.href} label={t.link} />
            <Button size="xs" variant="default" disabled={none} onClick={() => save('png')}>
              {t.png}
            </Button>
            <Button size="xs" variant="default" disabled={none} onClick={() => save('csv')}>
              {t.csv}
            </Button>
            <Button
              size="xs"
              disabled={none || !rights.can('create', 'metricchecks')}
              title={rights.why('create', 'metricchecks')}
              onClick={() => setAlerting(true)}
            >
              {t.alert}
            </Button>
          </Group>
        </>
      }
    >
      <div className={css.layout}>
        <Panel title={t.find}>
          <Finder by={search.find ?? 'tree'} onBy={(find) => change({ find: find === 'tree' ? undefined : find })} onAdd={add} />
        </Panel>
        <div className={css.main}>
          <Panel
            title={t.targets}
            tools={<Overlay namespace={search.ns ?? everywhere} value={search.event} onChange={(event) => change({ event })} />}
          >
            <Targets targets={targets} onChange={setTargets} />
          </Panel>
          {none ? (
            <EmptyState title={t.empty} help={t.emptyHelp} />
          ) : (
            <Panel>
              <QueryView query={query}>
                {({ from, until, series }) => (
                  <>
                    {search.event !== undefined && (
                      <Events event={search.event} time={time} onZoom={(a, b) => change({ time: writeBounds(a, b) })} />
                    )}
                    {series.length === 0 ? (
                      <EmptyState title={t.nothing} help={t.nothingHelp} />
                    ) : search.view === 'table' ? (
                      <Values series={series.slice(0, mostLines)} />
                    ) : (
                      <Lines series={series} from={from} until={until} onZoom={(a, b) => change({ time: writeBounds(a, b) })} />
                    )}
                  </>
                )}
              </QueryView>
            </Panel>
          )}
        </div>
      </div>
      {alerting && targets[0] !== undefined && (
        <MetricCheckDialog targets={targets} namespace={namespace} time={time} onClose={() => setAlerting(false)} />
      )}
    </Screen>
  )
}

interface LinesProps {
  series: readonly MetricSeries[]
  from: number
  until: number
  onZoom: (from: number, until: number) => void
}

function Lines({ series, from, until, onZoom }: LinesProps) {
  const drawn = series.slice(0, mostLines)
  const { times, values } = useMemo(() => align(drawn), [series])
  return (
    <>
      {series.length > drawn.length && (
        <Alert color="yellow" mb="sm">
          {t.drawn(drawn.length, series.length)}
        </Alert>
      )}
      <Plot
        label={t.plot}
        times={times}
        series={drawn.map(({ target }, i) => ({ label: target, values: values[i] ?? [] }))}
        height={320}
        sync={sync}
        from={from}
        to={until}
        format={shortValue}
        onZoom={onZoom}
        legend={false}
      />
      <Legend series={drawn} sync={sync} />
    </>
  )
}

interface ValueRow {
  time: number
  values: (number | null | undefined)[]
}

function Values({ series }: { series: readonly MetricSeries[] }) {
  const { time } = usePreferences()
  const rows = useMemo<ValueRow[]>(() => {
    const { times, values } = align(series)
    return times.map((at, i) => ({ time: at, values: values.map((row) => row[i]) })).reverse()
  }, [series])
  const columns: Column<ValueRow>[] = [
    { id: 'time', title: t.time, width: '200px', cell: (row) => clock(row.time, time) },
    ...series.map(({ target }, i): Column<ValueRow> => ({
      id: String(i),
      title: target,
      width: 'minmax(110px, 1fr)',
      end: true,
      mono: true,
      cell: (row) => (row.values[i] == null ? t.noValue : shortValue(row.values[i])),
    })),
  ]
  return (
    <div className={css.values}>
      <DataTable
        label={t.plot}
        columns={columns}
        rows={rows}
        keyOf={({ time: at }) => String(at)}
        empty={<EmptyState title={t.nothing} />}
      />
    </div>
  )
}

/** Changes of a check over the plot. */
function Events({ event, time, onZoom }: { event: string; time: string; onZoom: (from: number, until: number) => void }) {
  const [namespace = '', entity = '', check = ''] = event.split('/')
  const states = useStates({ namespace, entity, check, time })
  if (states.error)
    return (
      <Text size="sm" c="red">
        {states.error.message}
      </Text>
    )
  return states.data ? <Band {...states.data} silences={[]} sync={sync} onZoom={onZoom} aligned /> : null
}

/** Chooses the check whose states lie over the plot. */
function Overlay({
  namespace,
  value,
  onChange,
}: {
  namespace: string
  value: string | undefined
  onChange: (event: string | undefined) => void
}) {
  const { api } = useApp()
  const [typed, setTyped] = useState('')
  const [asked] = useDebouncedValue(typed, 200)
  const found = useQuery({
    queryKey: ['overlay', namespace, asked],
    queryFn: async () => {
      const words = asked.split(/[\s/]+/).filter((word) => word !== '')
      const fieldSelector = words
        .map((word) => `(event.entity.name matches ${quoted(word)} || event.check.name matches ${quoted(word)})`)
        .join(' && ')
      const answer = await unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
          params: { path: { namespace }, query: { limit: 30, ...(fieldSelector === '' ? {} : { fieldSelector }) } },
        }),
      )
      return (answer.rows ?? []).map((row) => `${row.namespace}/${row.entity}/${row.check}`)
    },
    placeholderData: keepPreviousData,
  })
  const data = [...new Set([...(value === undefined ? [] : [value]), ...(found.data ?? [])])]
  return (
    <Select
      size="xs"
      w={240}
      aria-label={t.overlay}
      placeholder={t.overlayHint}
      value={value ?? null}
      data={data}
      searchable
      clearable
      clearButtonProps={{ 'aria-label': `${t.overlay}: –` }}
      filter={({ options }) => options}
      onSearchChange={(text) => setTyped(text === value ? '' : text)}
      onChange={(event) => onChange(event ?? undefined)}
    />
  )
}

/** What is plotted, as text; the functions of each can be added and taken away. */
function Targets({ targets, onChange }: { targets: readonly string[]; onChange: (targets: readonly string[]) => void }) {
  const { session } = useApp()
  const [applying, setApplying] = useState<number>()
  const functions = useQuery({ queryKey: ['graphite-functions'], queryFn: () => graphiteFunctions(session.fetch), staleTime: Infinity })
  const takesSeries = useMemo(
    () => new Set((functions.data ?? []).filter(({ parameters }) => parameters[0]?.type.startsWith('seriesList')).map(({ name }) => name)),
    [functions.data],
  )
  const replace = (place: number, target: string) => onChange(targets.map((one, i) => (i === place ? target : one)))
  return (
    <div className={css.targets}>
      {targets.map((target, i) => {
        const chain = chainOf(target, (name) => takesSeries.has(name))
        return (
          <div key={`${i}-${target}`} className={css.target}>
            <TargetInput label={t.target(i + 1)} value={target} onChange={(next) => replace(i, next)} />
            <Button size="xs" variant="default" aria-label={t.applyTo(i + 1)} onClick={() => setApplying(i)}>
              {t.apply}
            </Button>
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={t.remove(i + 1)}
              title={t.remove(i + 1)}
              onClick={() => onChange(targets.filter((_, place) => place !== i))}
            >
              <Icon name="close" />
            </ActionIcon>
            {chain.calls.length > 0 && (
              <div className={css.calls}>
                {chain.calls.map((call, place) => (
                  <Pill
                    key={place}
                    withRemoveButton
                    removeButtonProps={{ 'aria-label': t.removeCall(call.name), 'aria-hidden': false, tabIndex: 0 }}
                    onRemove={() => replace(i, targetOf({ ...chain, calls: chain.calls.filter((_, other) => other !== place) }))}
                  >
                    {call.name}
                    {call.rest.length > 0 ? `: ${call.rest.join(', ')}` : ''}
                  </Pill>
                ))}
              </div>
            )}
          </div>
        )
      })}
      <TargetInput key={targets.length} label={t.add} value="" onChange={(next) => onChange([...targets, ...next.split('\n')])} />
      {applying !== undefined && (
        <FunctionDialog
          functions={functions}
          target={targets[applying] ?? ''}
          onApply={(target) => replace(applying, target)}
          onClose={() => setApplying(undefined)}
        />
      )}
    </div>
  )
}

function TargetInput({ label, value, onChange }: { label: string; value: string; onChange: (target: string) => void }) {
  const [typed, setTyped] = useState(value)
  const finish = () => {
    if (typed.trim() !== value) onChange(typed.trim())
  }
  return (
    <TextInput
      className={css.input}
      size="xs"
      aria-label={label}
      placeholder={t.targetHint}
      value={typed}
      spellCheck={false}
      autoComplete="off"
      onChange={(event) => setTyped(event.currentTarget.value)}
      onBlur={finish}
      onKeyDown={(event) => {
        if (event.key === 'Enter') finish()
        if (event.key === 'Escape') setTyped(value)
      }}
    />
  )
}

import { Alert, Button, Checkbox, Select, Text, type SelectProps } from '@mantine/core'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { refusal, unwrap } from '../../api/client'
import type { StateReport, StateReportRow } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { parseRange } from '../../app/range'
import { everywhere } from '../../app/search'
import { clock, span } from '../../app/time'
import { parseQuery } from '../../search/query'
import { text } from '../../text'
import { reportsText as t } from '../../text/reports'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { download } from '../../widgets/download'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts } from '../../widgets/Facts'
import { markOf, StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { RangeControl } from '../../widgets/RangeControl'
import { Panel, Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import { StateBand } from '../../widgets/StateBand'
import { failed } from '../../widgets/toast'
import { useLabels } from '../events/use-labels'
import { useSuggestions } from '../events/use-suggestions'
import { lengthOf, nameOf, statesOf } from './figures'
import css from './ReportsScreen.module.css'
import { kindOf, type ReportKind, type ReportsSearch } from './search'

const route = getRouteApi('/reports')
const initialTime = '7d'
/** Rows of the table; the CSV has all. */
const mostRows = 1000
/** Rows of the plot. */
const plotted = 12

/** Reports of the states of checks over a time. */
export function ReportsScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: Partial<ReportsSearch>) => void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const { api, session } = useApp()
  const kind = kindOf(search)
  const ns = search.ns ?? everywhere
  const labels = useLabels(ns)
  const suggest = useSuggestions(ns)
  const parameters = parametersOf(search)
  const report = useQuery({
    queryKey: ['report', ns, kind, parameters],
    enabled: ns !== everywhere,
    retry: false,
    queryFn: () =>
      unwrap(
        api.GET(`/api/lapwing/v1/namespaces/{namespace}/reports/${kind}`, {
          params: { path: { namespace: ns }, query: { ...parameters, limit: mostRows } },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: 60_000,
  })
  const save = (format: 'csv' | 'html') => {
    const query = new URLSearchParams({ format })
    for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, String(value))
    session
      .fetch(`/api/lapwing/v1/namespaces/${encodeURIComponent(ns)}/reports/${kind}?${query.toString()}`)
      .then(async (response) => {
        if (!response.ok) throw refusal(response.status, await response.text())
        download(`${kind}.${format}`, await response.blob())
      })
      .catch((err: unknown) => failed(t.failed, err))
  }
  const none = ns === everywhere
  const by = kind === 'incidents' ? 'pair' : (search.by ?? 'pair')
  return (
    <Screen
      title={t.title}
      bar={
        <>
          <Choice
            label={t.kind}
            value={kind}
            data={t.kinds}
            onChange={(next) => change({ kind: next === 'availability' ? undefined : next, sort: undefined })}
          />
          {search.month === undefined && <RangeControl value={search.time} initial={initialTime} onChange={(time) => change({ time })} />}
          <Choice label={t.month} value={search.month ?? ''} data={t.months} onChange={(month) => change({ month: month || undefined })} />
          <Choice
            label={t.by}
            value={by}
            disabled={kind === 'incidents'}
            data={[
              ...t.bys,
              ...[...new Set([...labels, ...(by.startsWith('label:') ? [by.slice(6)] : [])])].map((name) => ({
                value: `label:${name}`,
                label: t.byLabel(name),
              })),
            ]}
            onChange={(next) => change({ by: next === 'pair' ? undefined : next, sort: undefined })}
          />
          <SearchBox
            value={search.q ?? ''}
            placeholder={t.selector}
            onChange={(q) => change({ q: q === '' ? undefined : q })}
            {...suggest}
          />
          <Checkbox
            label={t.skipSilenced}
            size="xs"
            checked={search.skip === 'yes'}
            onChange={(event) => change({ skip: event.currentTarget.checked ? 'yes' : undefined })}
          />
          <Space />
          <Button size="xs" variant="default" disabled={none} onClick={() => save('csv')}>
            {t.csv}
          </Button>
          <Button size="xs" variant="default" disabled={none} onClick={() => save('html')}>
            {t.html}
          </Button>
        </>
      }
    >
      <Text size="sm" c="dimmed">
        {t.help[kind]}
      </Text>
      {none ? (
        <NamespaceNeeded onChoose={(namespace) => change({ ns: namespace })} />
      ) : (
        <QueryView query={report}>
          {(found) => (
            <Report
              report={found}
              kind={kind}
              sort={search.sort}
              onSort={(sort) => change({ sort })}
              onOpen={(event) => void navigate({ to: '/events', search: { ns, event, time: search.time } })}
            />
          )}
        </QueryView>
      )}
    </Screen>
  )
}

/** The parameters of a report, the same for the page, the CSV and the printed page. */
export function parametersOf(search: ReportsSearch) {
  const range = parseRange(search.time) ?? { last: 7 * 86_400 }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const { selector } = parseQuery(search.q ?? '')
  return {
    ...(search.month
      ? { month: search.month }
      : 'last' in range
        ? { since: `${range.last}s` }
        : { since: String(range.from), until: String(range.until) }),
    zone,
    ...(search.by && kindOf(search) !== 'incidents' ? { by: search.by } : {}),
    ...(selector === '' ? {} : { fieldSelector: selector }),
    ...(search.skip === 'yes' ? { skip_silenced: true } : {}),
  }
}

function Choice({
  label,
  ...props
}: Pick<SelectProps, 'value' | 'data' | 'disabled'> & { label: string; onChange: (value: string) => void }) {
  return (
    <Select
      size="xs"
      w={150}
      aria-label={label}
      title={label}
      allowDeselect={false}
      {...props}
      onChange={(value) => props.onChange(value ?? '')}
    />
  )
}

function NamespaceNeeded({ onChoose }: { onChoose: (namespace: string) => void }) {
  const { api } = useApp()
  const namespaces = useQuery({ queryKey: ['namespaces'], queryFn: () => unwrap(api.GET('/api/core/v2/namespaces')) })
  return (
    <EmptyState title={t.needsNamespace} help={t.needsNamespaceHelp}>
      <div className={css.choices}>
        {(namespaces.data ?? []).slice(0, 20).map(({ name = '' }) => (
          <Button key={name} size="xs" variant="default" onClick={() => onChoose(name)}>
            {name}
          </Button>
        ))}
      </div>
    </EmptyState>
  )
}

interface ReportProps {
  report: StateReport
  kind: ReportKind
  sort: string | undefined
  onSort: (sort: string | undefined) => void
  /** Opens the event of a row that is of one check of an entity. */
  onOpen: (event: string) => void
}

function Report({ report, kind, sort, onSort, onOpen }: ReportProps) {
  const { time } = usePreferences()
  const rows = report.rows ?? []
  const begin = Date.parse(report.begin) / 1000
  const until = Date.parse(report.until) / 1000
  const seconds = until - Date.parse(report.since) / 1000
  if (rows.length === 0) return <EmptyState title={t.empty} help={t.emptyHelp} />
  return (
    <>
      <div className={css.top}>
        <Panel title={t.total}>
          <Facts facts={totalFacts(report.total)} />
          {kind !== 'incidents' && report.total.band !== '' && <StateBand band={report.total.band} seconds={seconds} />}
        </Panel>
        <Panel title={t.plot}>
          <Bars rows={rows.slice(0, plotted)} kind={kind} />
        </Panel>
      </div>
      <div className={css.table} style={{ height: Math.min(560, 44 + 42 * rows.length) }}>
        <DataTable
          label={t.kinds.find(({ value }) => value === kind)?.label ?? ''}
          columns={columnsOf(kind, report.by, seconds, time)}
          rows={rows}
          keyOf={keyOf}
          sort={sort}
          onSort={onSort}
          {...(report.by === 'pair'
            ? {
                onOpen: (key: string | undefined) => {
                  const row = rows.find((one) => keyOf(one) === key)
                  if (row) onOpen(`${report.namespace}/${nameOf(row)}`)
                },
              }
            : {})}
          empty={null}
        />
      </div>
      <Text size="xs" c="dimmed">
        {t.from(clock(Date.parse(report.since) / 1000, time, false), clock(until, time, false))}{' '}
        {begin > Date.parse(report.since) / 1000 + 1 && t.shorter(clock(begin, time, false))} {t.source[report.source] ?? report.source}{' '}
        {report.source_note}
      </Text>
      {report.more > 0 && <Alert color="yellow">{t.more(report.more)}</Alert>}
    </>
  )
}

const keyOf = (row: StateReportRow) => `${nameOf(row)} ${row.incident?.begin ?? ''}`

const duration = (ms: number | null | undefined) => (ms === null || ms === undefined ? '–' : span(ms / 1000))

function totalFacts(total: StateReportRow): [string, string | undefined][] {
  return [
    [t.checks, text.number(total.pairs)],
    [t.uptime, total.uptime_ppm === null ? undefined : text.uptime(total.uptime_ppm)],
    [t.incidents, text.number(total.incidents + total.carried)],
    [t.openNow, total.open > 0 ? text.number(total.open) : undefined],
    [t.toAcknowledge, total.mtta_ms === null ? undefined : duration(total.mtta_ms)],
    [t.toResolve, total.mttr_ms === null ? undefined : duration(total.mttr_ms)],
    [t.longest, total.longest_ms > 0 ? duration(total.longest_ms) : undefined],
  ]
}

/** The first rows as bars. */
function Bars({ rows, kind }: { rows: readonly StateReportRow[]; kind: ReportKind }) {
  const longest = Math.max(1, ...rows.map((row) => lengthOf(kind, row)))
  return (
    <ul className={css.bars}>
      {rows.map((row) => (
        <li key={keyOf(row)}>
          <span className={css.name} title={nameOf(row)}>
            {nameOf(row) || t.none}
          </span>
          <span className={css.bar} aria-hidden="true">
            {kind === 'availability' ? (
              statesOf(row).map(({ mark, width }) => <i key={mark} data-mark={mark} style={{ width: `${width}%` }} />)
            ) : (
              <i
                data-mark={kind === 'incidents' ? markOf(row.incident?.status ?? 0) : 'count'}
                style={{ width: `${(100 * lengthOf(kind, row)) / longest}%` }}
              />
            )}
          </span>
          <span className={css.value}>{valueOf(kind, row)}</span>
        </li>
      ))}
    </ul>
  )
}

function valueOf(kind: ReportKind, row: StateReportRow): string {
  switch (kind) {
    case 'availability':
      return text.uptime(row.uptime_ppm)
    case 'response':
      return text.number(row.incidents)
    case 'noisiest':
      return text.number(row.changes)
    case 'flapping':
      return duration(row.flapping_ms)
    case 'incidents':
      return duration(row.incident?.duration_ms)
  }
}

type RowColumn = Column<StateReportRow>

function columnsOf(kind: ReportKind, by: string, seconds: number, zone: 'local' | 'utc'): RowColumn[] {
  const named: RowColumn[] = by.startsWith('label:')
    ? [
        {
          id: 'label',
          title: by.slice(6),
          width: 'minmax(120px, 1.5fr)',
          cell: (row) => <b>{row.label || t.none}</b>,
          order: byText((row) => row.label ?? ''),
        },
      ]
    : [
        ...(by === 'check'
          ? []
          : [
              {
                id: 'entity',
                title: t.entity,
                width: 'minmax(100px, 1.2fr)',
                cell: (row: StateReportRow) => <b>{row.entity}</b>,
                order: byText((row: StateReportRow) => row.entity ?? ''),
              },
            ]),
        ...(by === 'entity'
          ? []
          : [
              {
                id: 'check',
                title: t.check,
                width: 'minmax(90px, 1fr)',
                cell: (row: StateReportRow) => row.check,
                order: byText((row: StateReportRow) => row.check ?? ''),
              },
            ]),
      ]
  const time = (id: string, title: string, of: (row: StateReportRow) => number | null, wide = true): RowColumn => ({
    id,
    title,
    width: '108px',
    end: true,
    wide,
    cell: (row) => duration(of(row)),
    order: byNumber((row) => of(row) ?? -1),
  })
  const number = (id: string, title: string, of: (row: StateReportRow) => number, wide = false): RowColumn => ({
    id,
    title,
    width: '92px',
    end: true,
    wide,
    cell: (row) => text.number(of(row)),
    order: byNumber(of),
  })
  const uptime: RowColumn = {
    id: 'uptime',
    title: t.uptime,
    width: '92px',
    end: true,
    cell: (row) => text.uptime(row.uptime_ppm),
    order: byNumber((row) => row.uptime_ppm ?? -1),
  }
  const band: RowColumn = {
    id: 'band',
    title: t.band,
    width: 'minmax(120px, 1.5fr)',
    wide: true,
    cell: (row) => <StateBand band={row.band} seconds={seconds} />,
  }
  switch (kind) {
    case 'availability':
      return [
        ...named,
        uptime,
        time('ok', t.ok, (row) => row.ok_ms),
        time('warning', t.warning, (row) => row.warning_ms),
        time('critical', t.critical, (row) => row.critical_ms),
        time('unknown', t.unknown, (row) => row.unknown_ms + row.missing_ms),
        time('silenced', t.silenced, (row) => row.silenced_ms),
        band,
      ]
    case 'response':
      return [
        ...named,
        number('incidents', t.incidents, (row) => row.incidents + row.carried),
        number('acknowledged', t.acknowledged, (row) => row.acknowledged, true),
        time('mtta', t.toAcknowledge, (row) => row.mtta_ms, false),
        time('mttr', t.toResolve, (row) => row.mttr_ms),
        time('longest', t.longest, (row) => row.longest_ms),
        band,
      ]
    case 'noisiest':
      return [
        ...named,
        number('changes', t.changes, (row) => row.changes),
        number('incidents', t.incidents, (row) => row.incidents, true),
        { ...uptime, wide: true },
        band,
      ]
    case 'flapping':
      return [
        ...named,
        time('flapping', t.flapping, (row) => row.flapping_ms, false),
        number('episodes', t.episodes, (row) => row.episodes, true),
        number('changes', t.changes, (row) => row.changes, true),
        band,
      ]
    case 'incidents':
      return [
        {
          id: 'state',
          title: t.state,
          width: '104px',
          cell: ({ incident }) =>
            incident && (
              <span className={css.state}>
                <StatusMark mark={markOf(incident.status)} /> {incident.missing ? t.missing : text.status(incident.status)}
              </span>
            ),
          order: byNumber((row) => row.incident?.status ?? 0),
        },
        ...named,
        {
          id: 'begin',
          title: t.begin,
          width: 'minmax(110px, 1.3fr)',
          wide: true,
          cell: ({ incident }) =>
            incident && `${clock(Date.parse(incident.begin) / 1000, zone, false)}${incident.carried ? `, ${t.carried}` : ''}`,
          order: byText((row) => row.incident?.begin ?? ''),
        },
        {
          id: 'end',
          title: t.end,
          width: 'minmax(110px, 1.3fr)',
          wide: true,
          cell: ({ incident }) =>
            incident &&
            (incident.end === null ? (
              <b>{t.stillOpen}</b>
            ) : (
              `${clock(Date.parse(incident.end) / 1000, zone, false)}${incident.deleted ? `, ${t.deleted}` : ''}`
            )),
          order: byText((row) => row.incident?.end ?? '9'),
        },
        time('duration', t.duration, (row) => row.incident?.duration_ms ?? 0, false),
        time('mtta', t.toAcknowledge, (row) => row.mtta_ms),
      ]
  }
}

import { Button, SegmentedControl } from '@mantine/core'
import { getRouteApi } from '@tanstack/react-router'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { text } from '../../text'
import { checksText as t } from '../../text/checks'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { EmptyState } from '../../widgets/EmptyState'
import { Icon, StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import { CheckDetail } from './CheckDetail'
import { CheckForm } from './CheckForm'
import css from './ChecksScreen.module.css'
import { DeleteCheck, Publish } from './CheckActs'
import { failingOf, handledBy, isLate, lateness, markOfCheck, matches, schedule, type CheckRow } from './row'
import type { ChecksSearch } from './search'
import { TestRun } from './TestRun'
import { useChecks, useTargets } from './use-checks'

const route = getRouteApi('/checks')

/** All checks: what they do, whether they run, and how many entities fail them. */
export function ChecksScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: { [K in keyof ChecksSearch]?: string | undefined }) =>
    void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const namespace = search.ns ?? everywhere
  const rights = useRights(namespace)
  const { query, rows } = useChecks(namespace)
  const shown = rows.filter((row) => matches(row, search.q ?? '', search.state))
  const open = rows.find(({ key }) => key === search.check)
  const close = () => change({ act: undefined })
  const step = (by: number) => {
    const next = shown[shown.findIndex(({ key }) => key === search.check) + by]
    if (next) change({ check: next.key })
  }
  const why = rights.why('create', 'checks')
  const make = (
    <Button size="xs" disabled={why !== undefined} title={why} onClick={() => change({ act: 'new' })}>
      {t.new}
    </Button>
  )
  return (
    <Screen
      title={t.title}
      flush
      bar={
        <>
          <SearchBox value={search.q ?? ''} placeholder={t.search} onChange={(q) => change({ q: q === '' ? undefined : q })} />
          <SegmentedControl
            size="xs"
            aria-label={t.which}
            value={search.state ?? 'all'}
            data={t.states}
            onChange={(state) => change({ state: state === 'all' ? undefined : state })}
          />
          <span className={css.count}>{query.isSuccess && t.shown(shown.length, rows.length)}</span>
          <Space />
          {make}
        </>
      }
      detail={
        search.check !== undefined &&
        query.isSuccess && (
          <CheckDetail
            target={search.check}
            row={open}
            onClose={() => change({ check: undefined })}
            onStep={step}
            onAct={(act) => change({ act })}
          />
        )
      }
    >
      <QueryView query={query}>
        {() => (
          <DataTable
            label={t.title}
            columns={namespace === everywhere ? columns : columns.filter(({ id }) => id !== 'namespace')}
            rows={shown}
            keyOf={({ key }) => key}
            selected={search.check}
            onOpen={(check) => change({ check })}
            sort={search.sort}
            onSort={(sort) => change({ sort })}
            empty={
              rows.length === 0 ? (
                <EmptyState title={t.empty} help={t.emptyHelp}>
                  {make}
                </EmptyState>
              ) : (
                <EmptyState title={t.nothing} help={t.nothingHelp} />
              )
            }
          />
        )}
      </QueryView>
      {search.act === 'new' && why === undefined && (
        <CheckForm namespace={namespace === everywhere ? 'default' : namespace} onClose={close} />
      )}
      {open && search.act === 'edit' && <CheckForm check={open.check} namespace={open.namespace} onClose={close} />}
      {open && search.act === 'run' && <TestRun check={open.check} namespace={open.namespace} onClose={close} />}
      {open && search.act === 'publish' && <Publish check={open.check} namespace={open.namespace} onClose={close} />}
      {open && search.act === 'delete' && (
        <DeleteCheck check={open.check} onClose={(deleted) => change({ act: undefined, ...(deleted ? { check: undefined } : {}) })} />
      )}
    </Screen>
  )
}

const columns: Column<CheckRow>[] = [
  {
    id: 'name',
    title: t.columns.name,
    width: 'minmax(160px, 2fr)',
    order: byText(({ name }) => name),
    cell: ({ name, counts }) => {
      const mark = markOfCheck(counts)
      return (
        <span className={css.name}>
          {mark === undefined ? <Icon name={failingOf(counts) > 0 ? 'muted' : 'ended'} /> : <StatusMark mark={mark} />} {name}
        </span>
      )
    },
  },
  {
    id: 'namespace',
    title: t.columns.namespace,
    width: '110px',
    wide: true,
    order: byText(({ namespace }) => namespace),
    cell: ({ namespace }) => namespace,
  },
  {
    id: 'failing',
    title: t.columns.failing,
    width: '100px',
    end: true,
    order: byNumber(({ counts }) => failingOf(counts)),
    cell: ({ counts }) => (counts ? t.of(failingOf(counts), counts.total) : t.noResults),
  },
  {
    id: 'late',
    title: t.columns.late,
    width: 'minmax(90px, 1fr)',
    order: byNumber(({ late }) => (late?.overdue ?? 0) + (isLate(late) ? 1 : 0)),
    cell: ({ late }) => (
      <span className={isLate(late) ? css.late : undefined} title={late?.summary || undefined}>
        {lateness(late)}
      </span>
    ),
  },
  {
    id: 'schedule',
    title: t.columns.schedule,
    width: 'minmax(90px, 1fr)',
    wide: true,
    order: byNumber(({ check }) => check.interval ?? 0),
    cell: ({ check }) => schedule(check),
  },
  {
    id: 'targets',
    title: t.columns.targets,
    width: 'minmax(90px, 1.2fr)',
    wide: true,
    order: byText(({ check }) => (check.subscriptions ?? []).join()),
    cell: ({ check }) => (check.subscriptions ?? []).join(', '),
  },
  {
    id: 'handlers',
    title: t.columns.handlers,
    width: 'minmax(90px, 1.2fr)',
    wide: true,
    order: byText(({ check }) => handledBy(check).join()),
    cell: ({ check }) => handledBy(check).join(', ') || t.nobody,
  },
  {
    id: 'published',
    title: t.columns.published,
    width: '84px',
    wide: true,
    order: byNumber(({ check }) => (check.publish ? 1 : 0)),
    cell: ({ check }) => (check.publish ? t.yes : t.no),
  },
  {
    id: 'agents',
    title: t.columns.agents,
    width: '70px',
    end: true,
    wide: true,
    cell: ({ namespace, name }) => <Agents namespace={namespace} name={name} />,
  },
]

/** How many connected agents run a check; asked for the rows that are drawn. */
function Agents({ namespace, name }: { namespace: string; name: string }) {
  const { data, error } = useTargets(namespace, name)
  return <span title={error?.message}>{data ? text.number(data.agents) : error ? '–' : '…'}</span>
}

import { Group } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Calendar, CalendarPreview } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { everywhere } from '../../app/search'
import { clock, Moment, span, useNow } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { oncall as t } from '../../text/oncall'
import { byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, list, Pairs, Section } from '../../widgets/Facts'
import { QueryView } from '../../widgets/QueryView'
import { partsOf } from '../silences/model'
import type { ListProps } from './Contacts'
import { DeleteButton } from './DeleteButton'
import { EditButton } from './EditButton'
import css from './OnCallScreen.module.css'
import { Warn } from './Rotas'

const c = t.calendars
/** Times that a detail lists at most. */
const listed = 60

const keyOf = ({ metadata }: Calendar) => `${metadata?.namespace}/${metadata?.name}`

function useTimes(id: string) {
  const { api } = useApp()
  const { namespace, name } = partsOf(id)
  return useQuery({
    queryKey: definitionsKey('calendars', 'times', id),
    refetchInterval: 30_000,
    retry: false,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/calendars/{name}/preview', { params: { path: { namespace, name }, query: {} } }),
      ),
  })
}

/** Sets of times with a name, and which are active now. */
export function Calendars({ namespace, ...rest }: ListProps) {
  const { definitions } = useApp()
  const query = useQuery({
    queryKey: definitionsKey('calendars', namespace),
    queryFn: () => definitions.list<Calendar & Definition>(kinds.calendars, namespace),
  })
  const columns: Column<Calendar>[] = [
    {
      id: 'name',
      title: c.columns.name,
      width: 'minmax(120px, 1fr)',
      order: byText(keyOf),
      cell: ({ metadata }) => (
        <>
          <b>{metadata?.name}</b> {namespace === everywhere && <small className={css.sub}>{metadata?.namespace}</small>}
        </>
      ),
    },
    { id: 'state', title: c.columns.state, width: '130px', cell: (one) => <State id={keyOf(one)} /> },
    { id: 'changes', title: c.columns.changes, width: '140px', cell: (one) => <Changes id={keyOf(one)} /> },
    {
      id: 'description',
      title: c.columns.description,
      width: 'minmax(120px, 2fr)',
      wide: true,
      cell: ({ description }) => description,
      order: byText((one) => one.description ?? ''),
    },
  ]
  return (
    <QueryView query={query}>
      {(calendars) => (
        <DataTable
          label={t.parts[3]?.label ?? ''}
          columns={columns}
          rows={calendars}
          keyOf={keyOf}
          empty={<EmptyState title={c.empty} help={c.emptyHelp} />}
          {...rest}
        />
      )}
    </QueryView>
  )
}

const stateOf = ({ problem, active }: CalendarPreview) => (problem ? c.problem : active ? c.active : c.inactive)

function State({ id }: { id: string }) {
  const { data, error } = useTimes(id)
  if (!data) return <span title={error?.message}>{error ? '–' : '…'}</span>
  return (
    <span className={data.problem ? css.broken : data.active ? css.link : css.sub} title={data.problem}>
      {stateOf(data)}
    </span>
  )
}

function Changes({ id }: { id: string }) {
  const { data } = useTimes(id)
  const now = useNow() / 1000
  const { time } = usePreferences()
  if (!data || data.problem) return null
  if (!data.next) return <span className={css.sub}>{c.never}</span>
  return <time title={clock(data.next, time, false)}>{c.in(span(data.next - now))}</time>
}

/** All of a calendar, with its next times. */
export function CalendarDetail({ id, onClose }: { id: string; onClose: () => void }) {
  const { definitions } = useApp()
  const { time } = usePreferences()
  const { namespace, name } = partsOf(id)
  const query = useQuery({
    queryKey: definitionsKey('calendars', 'one', id),
    retry: false,
    queryFn: () => definitions.one<Calendar & Definition>(kinds.calendars, namespace, name),
  })
  const times = useTimes(id)
  const line = ({ begin, end, name: called }: { begin: number; end: number; name?: string }) => (
    <li key={`${begin} ${end}`}>
      <span>
        {clock(begin, time, false)} – {clock(end, time, false)}
      </span>
      {called && <small>{called}</small>}
    </li>
  )
  return (
    <DetailPane id={id} label={c.label} title={name} subtitle={times.data && stateOf(times.data)} onClose={onClose}>
      <QueryView query={query}>
        {(calendar) => (
          <>
            <Group gap="sm">
              <EditButton kind={kinds.calendars} definition={calendar} />
              <DeleteButton kind={kinds.calendars} definition={calendar} onDeleted={onClose} />
            </Group>
            <Section title={c.label}>
              <Facts
                facts={[
                  [c.columns.description, calendar.description],
                  [c.zone, calendar.time_zone || 'UTC'],
                  [c.next, times.data?.next ? <Moment at={times.data.next} seconds={false} /> : undefined],
                  [c.includes, list(calendar.include)],
                  [text.namespace, namespace],
                ]}
              />
            </Section>
            <Section title={c.coming}>
              <QueryView query={times} rows={3}>
                {({ problem, windows, more, excepted }) => (
                  <>
                    {problem && <Warn>{problem}</Warn>}
                    {!problem && (windows ?? []).length === 0 && <p className={css.sub}>{c.none}</p>}
                    <ul className={css.lines}>{(windows ?? []).slice(0, listed).map(line)}</ul>
                    {(more || (windows ?? []).length > listed) && <p className={css.sub}>{c.more}</p>}
                    {(excepted ?? []).length > 0 && (
                      <Section title={c.excepted}>
                        <ul className={css.lines}>{(excepted ?? []).slice(0, listed).map(line)}</ul>
                      </Section>
                    )}
                  </>
                )}
              </QueryView>
            </Section>
            <Pairs title={text.labels} sources={[calendar.metadata?.labels]} />
          </>
        )}
      </QueryView>
    </DetailPane>
  )
}

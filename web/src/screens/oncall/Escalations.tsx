import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { unwrap } from '../../api/client'
import type { Escalation } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { everywhere } from '../../app/search'
import { clock, span, useNow } from '../../app/time'
import { oncall as t } from '../../text/oncall'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { EmptyState } from '../../widgets/EmptyState'
import { QueryView } from '../../widgets/QueryView'
import type { ListProps } from './Contacts'
import { escalationKey } from './model'
import css from './OnCallScreen.module.css'

const c = t.escalations

/** Incidents that people are notified of step by step. A row opens its event. */
export function Escalations({ namespace, sort, onSort }: ListProps) {
  const { api } = useApp()
  const navigate = useNavigate()
  const query = useQuery({
    queryKey: ['escalations', namespace],
    refetchInterval: 5000,
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/escalations', { params: { path: { namespace }, query: {} } })),
  })
  const columns: Column<Escalation>[] = [
    {
      id: 'incident',
      title: c.columns.incident,
      width: 'minmax(140px, 1.2fr)',
      order: byText((one) => `${one.check} ${one.entity}`),
      cell: ({ namespace: space, entity, check }) => (
        <>
          <b>{check}</b> · {entity} {namespace === everywhere && <small className={css.sub}>{space}</small>}
        </>
      ),
    },
    {
      id: 'handler',
      title: c.columns.handler,
      wide: true,
      width: 'minmax(80px, 0.7fr)',
      cell: ({ handler }) => handler,
      order: byText(({ handler }) => handler),
    },
    {
      id: 'steps',
      title: c.columns.steps,
      wide: true,
      width: '96px',
      cell: ({ steps }) => c.steps(steps),
      order: byNumber(({ steps }) => steps),
    },
    { id: 'told', title: c.columns.told, wide: true, width: 'minmax(120px, 1.3fr)', cell: (one) => <Told escalation={one} /> },
    {
      id: 'next',
      title: c.columns.next,
      width: 'minmax(140px, 1.6fr)',
      cell: (one) => <Next escalation={one} />,
      order: byNumber(({ next }) => next || Infinity),
    },
    {
      id: 'since',
      title: c.columns.since,
      width: '84px',
      end: true,
      cell: (one) => <For began={one.began} />,
      order: byNumber(({ began }) => -began),
    },
  ]
  const open = (key: string | undefined) => {
    const one = (query.data?.escalations ?? []).find((escalation) => escalationKey(escalation) === key)
    if (!one) return
    const event = `${one.namespace}/${one.entity}/${one.check}`
    void navigate({ to: '/events', search: { ...(namespace === everywhere ? {} : { ns: namespace }), event } })
  }
  return (
    <QueryView query={query}>
      {({ escalations, more }) => (
        <>
          <DataTable
            label={t.parts[1]?.label ?? ''}
            columns={columns}
            rows={escalations ?? []}
            keyOf={escalationKey}
            onOpen={open}
            sort={sort}
            onSort={onSort}
            empty={<EmptyState title={c.empty} help={c.emptyHelp} />}
          />
          {more && <p className={css.sub}>{c.more}</p>}
        </>
      )}
    </QueryView>
  )
}

function Told({ escalation: { notified, sending, failed, tries } }: { escalation: Escalation }) {
  const bad = failed ?? []
  const words = [
    (notified ?? []).join(', ') || c.nobody,
    ...((sending ?? []).length > 0 ? [c.sending(sending ?? [])] : []),
    ...(bad.length > 0 ? [c.failed(bad)] : []),
  ].join('; ')
  const help = [
    words,
    ...(tries ?? []).map(({ contact, handler, attempts, error }) => c.tries(contact || handler, attempts, error ?? '')),
  ].join('\n')
  return (
    <span title={help} className={bad.length > 0 ? css.broken : ''}>
      {words}
    </span>
  )
}

function Next({
  escalation: { held, next = 0, next_notifies: whom, next_problem: problem, quiet, quiet_until: until },
}: {
  escalation: Escalation
}) {
  const { time } = usePreferences()
  const now = useNow()
  const due = next <= now ? c.due : c.next(span((next - now) / 1000), whom ?? [])
  const words = held
    ? c.held(held)
    : quiet
      ? c.quiet(quiet, until ? clock(until / 1000, time, false) : undefined)
      : next === 0
        ? c.over
        : [due, problem && c.problem(problem)].filter(Boolean).join('; ')
  return (
    <span title={words} className={problem || (next === 0 && !held && !quiet) ? css.broken : ''}>
      {words}
    </span>
  )
}

function For({ began }: { began: number }) {
  return <>{span((useNow() - began) / 1000)}</>
}

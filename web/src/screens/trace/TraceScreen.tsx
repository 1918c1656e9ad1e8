import { Button, Group, Skeleton } from '@mantine/core'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { getRouteApi, Link } from '@tanstack/react-router'
import { lazy, Suspense } from 'react'
import { unwrap } from '../../api/client'
import type { Outcome } from '../../api/types'
import { useApp } from '../../app/context'
import { Age, Moment } from '../../app/time'
import { quoted } from '../../search/query'
import { text } from '../../text/trace'
import { EmptyState } from '../../widgets/EmptyState'
import { markOf, StatusMark } from '../../widgets/icons'
import { MomentInput } from '../../widgets/MomentInput'
import { QueryView } from '../../widgets/QueryView'
import { Panel, Screen, Space } from '../../widgets/Screen'
import { RedriveButton } from '../queues/Redrive'
import { DeliveryCard } from './DeliveryCard'
import { letterOf, usedBy, verdictMark } from './present'
import { ResultMark } from './ResultMark'
import { partsOf, type TraceSearch } from './search'
import css from './TraceScreen.module.css'

const Simulate = lazy(() => import('./Simulate'))
const route = getRouteApi('/trace')

/** Results that are asked for at most. */
const limit = 10
/** How often what became of them is asked anew, in ms. */
const every = 3000

/** Why an event did, or did not, alert. */
export function TraceScreen() {
  const { api } = useApp()
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: Partial<Record<keyof TraceSearch, unknown>>) =>
    void navigate({ search: (all) => ({ ...all, ...part }) as TraceSearch, replace: true })
  const { event = '', until } = search
  const { namespace, entity, check } = partsOf(event)
  const trace = useQuery({
    queryKey: ['trace', event, until],
    enabled: check !== '',
    queryFn: () =>
      unwrap<Outcome[] | null>(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/trace', {
          params: { path: { namespace, entity, check }, query: { limit, ...(until === undefined ? {} : { until: String(until) }) } },
        }),
      ),
    placeholderData: keepPreviousData,
    refetchInterval: every,
  })
  if (check === '') {
    return (
      <Screen title={text.title}>
        <EmptyState title={text.choose} help={text.chooseHelp}>
          <Link to="/events" search={search.ns === undefined ? {} : { ns: search.ns }}>
            {text.events}
          </Link>
        </EmptyState>
      </Screen>
    )
  }
  const outcomes = trace.data ?? []
  return (
    <Screen
      title={text.title}
      bar={
        <>
          <span className={css.event}>
            <b>{check}</b> {entity} · {namespace}
          </span>
          <Space />
          <Group gap="sm" align="end">
            <MomentInput label={text.until} value={until} onChange={(at) => change({ until: at })} />
            <Button
              size="xs"
              variant={search.simulate ? 'light' : 'default'}
              aria-pressed={search.simulate === true}
              onClick={() => change({ simulate: search.simulate ? undefined : true })}
            >
              {text.simulate}
            </Button>
            <Button size="xs" variant="default" renderRoot={(props) => <Link to="/events" search={{ ns: search.ns, event }} {...props} />}>
              {text.event}
            </Button>
          </Group>
        </>
      }
    >
      {search.simulate && (
        <Panel title={text.simulate}>
          <Suspense fallback={<Skeleton height={180} />}>
            <Simulate
              namespace={namespace}
              entity={entity}
              check={check}
              used={usedBy(outcomes.flatMap(({ deliveries }) => deliveries ?? []))}
            />
          </Suspense>
        </Panel>
      )}
      <QueryView query={trace}>
        {(data) =>
          data === null || data.length === 0 ? (
            <EmptyState title={text.none} help={text.noneHelp}>
              <Button onClick={() => change({ simulate: true })}>{text.simulate}</Button>
            </EmptyState>
          ) : (
            <Outcomes outcomes={data} />
          )
        }
      </QueryView>
    </Screen>
  )
}

function Outcomes({ outcomes }: { outcomes: Outcome[] }) {
  const { api } = useApp()
  const [newest, ...older] = outcomes
  const { namespace = '', entity = '', check = '' } = newest ?? {}
  const dead = outcomes.some(({ deliveries }) => deliveries?.some(({ verdict }) => verdict === 'dead'))
  const letters = useQuery({
    queryKey: ['deadletters', namespace, 'of', entity, check],
    enabled: dead,
    retry: false,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/deadletters', {
          params: {
            path: { namespace },
            query: { fieldSelector: `deadletter.entity == ${quoted(entity)} && deadletter.check == ${quoted(check)}`, limit: 200 },
          },
        }),
      ),
    refetchInterval: every,
  })
  if (!newest) return null
  const cards = ({ deliveries }: Outcome) =>
    (deliveries ?? []).map((delivery) => {
      const letter = delivery.verdict === 'dead' ? letterOf(letters.data ?? [], delivery) : undefined
      return (
        <DeliveryCard
          key={delivery.id}
          delivery={delivery}
          letter={letter}
          tools={letter && <RedriveButton namespace={letter.namespace} choice={{ ids: [letter.id] }} label={text.redrive} />}
        />
      )
    })
  return (
    <>
      <Panel title={text.answer} tools={<Came outcome={newest} />}>
        <Verdicts outcome={newest} />
        {letters.error && <p className={css.note}>{text.noLetters(letters.error.message)}</p>}
        {cards(newest)}
      </Panel>
      {older.length > 0 && (
        <Panel title={text.older}>
          {older.map((outcome) => (
            <details key={outcome.event} className={css.outcome}>
              <summary>
                <Came outcome={outcome} />
                <Verdicts outcome={outcome} />
              </summary>
              {cards(outcome)}
            </details>
          ))}
        </Panel>
      )}
    </>
  )
}

function Came({ outcome: { status, incident = false, resolution = false, received } }: { outcome: Outcome }) {
  return (
    <span className={css.came}>
      <StatusMark mark={markOf(status)} size={14} /> {text.came(status, incident, resolution)} · <Moment at={received / 1000} /> ·{' '}
      <Age at={received / 1000} /> {text.ago}
    </span>
  )
}

/** The verdict of each route in a word. */
function Verdicts({ outcome }: { outcome: Outcome }) {
  return (
    <span className={css.verdicts}>
      {(outcome.deliveries ?? []).map(({ id, handler, verdict }) => (
        <span key={id} className={css.verdict}>
          <ResultMark mark={verdictMark(verdict)} size={12} /> {handler || text.noHandler}:{' '}
          {(text.verdicts[verdict] ?? verdict).toLowerCase()}
        </span>
      ))}
    </span>
  )
}

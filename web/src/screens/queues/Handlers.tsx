import { Button, Group, Text } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import type { ClassCounts, Handler, Waiting } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { Age, Moment, span, useNow } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text as shared } from '../../text'
import { text } from '../../text/queues'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Output, Section } from '../../widgets/Facts'
import { FormDialog } from '../../widgets/FormDialog'
import { markOf, StatusMark, type Mark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { done } from '../../widgets/toast'
import { depthOf, handlerRows, stateOf, type HandlerRow, type HandlerState } from './present'
import type { PartProps } from './part'
import css from './Queues.module.css'
import { splitKey } from './search'
import { useLetters, useWaiting, useWaitingOf } from './use-queues'

const marks: Record<HandlerState, Mark> = { failing: 'critical', waiting: 'warning', running: 'ok', idle: 'ok' }
const keyOf = ({ namespace, name }: HandlerRow) => `${namespace}/${name}`

export function HandlerTable({ namespace, search, change }: PartProps) {
  const { definitions } = useApp()
  const defined = useQuery({
    queryKey: definitionsKey('handlers', namespace),
    queryFn: () => definitions.list<Handler & { [field: string]: unknown }>(kinds.handlers, namespace),
    retry: false,
  })
  const letters = useLetters(namespace)
  const waiting = useWaiting(namespace)
  const kept = letters.data?.pages.flatMap((page) => page.letters) ?? []
  const c = text.handlers.columns
  const columns: Column<HandlerRow>[] = [
    {
      id: 'state',
      title: c.state,
      width: 'minmax(130px, 1.1fr)',
      order: byText((row) => stateOf(row.waiting)),
      cell: (row) => <State waiting={row.waiting} />,
    },
    { id: 'handler', title: c.handler, width: 'minmax(110px, 1.4fr)', order: byText((row) => row.name), cell: (row) => row.name },
    ...(namespace === everywhere
      ? [
          {
            id: 'namespace',
            title: c.namespace,
            wide: true,
            order: byText((row: HandlerRow) => row.namespace),
            cell: (row: HandlerRow) => row.namespace,
          },
        ]
      : []),
    {
      id: 'depth',
      title: c.depth,
      width: '64px',
      end: true,
      order: byNumber((row) => depthOf(row.waiting)),
      cell: (row) => <span title={text.handlers.depthHelp}>{shared.number(depthOf(row.waiting))}</span>,
    },
    {
      id: 'retrying',
      title: c.retrying,
      width: '74px',
      end: true,
      wide: true,
      order: byNumber((row) => row.waiting?.retrying ?? 0),
      cell: (row) => shared.number(row.waiting?.retrying ?? 0),
    },
    {
      id: 'oldest',
      title: c.oldest,
      width: '74px',
      wide: true,
      order: byNumber((row) => row.waiting?.oldest ?? Infinity),
      cell: (row) => <Age at={(row.waiting?.oldest ?? 0) / 1000} />,
    },
    {
      id: 'next',
      title: c.next,
      width: '84px',
      wide: true,
      order: byNumber((row) => row.waiting?.next ?? Infinity),
      cell: (row) => <Until at={row.waiting?.next ?? 0} />,
    },
    {
      id: 'delivered',
      title: c.delivered,
      width: '84px',
      wide: true,
      order: byNumber((row) => row.waiting?.last_delivered ?? 0),
      cell: (row) => <Age at={(row.waiting?.last_delivered ?? 0) / 1000} />,
    },
    {
      id: 'letters',
      title: c.letters,
      width: '96px',
      end: true,
      order: byNumber((row) => row.letters),
      cell: (row) =>
        letters.hasNextPage ? (
          <span title={text.handlers.atLeastHelp}>{text.handlers.atLeast(row.letters)}</span>
        ) : (
          shared.number(row.letters)
        ),
    },
    {
      id: 'error',
      title: c.error,
      width: 'minmax(0, 2fr)',
      wide: true,
      cell: (row) => <span title={row.waiting?.last_error}>{row.waiting?.last_error}</span>,
    },
  ]
  return (
    <QueryView query={waiting}>
      {(all) => (
        <DataTable
          label={text.tabs.handlers}
          columns={columns}
          rows={handlerRows(defined.data ?? [], all, kept)}
          keyOf={keyOf}
          selected={search.handler}
          onOpen={(handler) => change({ handler })}
          sort={search.sort}
          onSort={(sort) => change({ sort })}
          empty={<EmptyState title={text.handlers.none} help={text.handlers.noneHelp} />}
        />
      )}
    </QueryView>
  )
}

function State({ waiting }: { waiting: Waiting | undefined }) {
  const now = useNow()
  const state = stateOf(waiting)
  return (
    <span className={css.state}>
      <StatusMark mark={marks[state]} size={14} />
      {state === 'failing' ? text.handlers.failing(span((now - (waiting?.failing_since ?? now)) / 1000)) : text.handlers.states[state]}
    </span>
  )
}

/** How long until a moment in Unix ms. */
function Until({ at }: { at: number }) {
  const now = useNow()
  if (at === 0) return <span>–</span>
  return <time dateTime={new Date(at).toISOString()}>{at <= now ? text.handlers.due : span((at - now) / 1000)}</time>
}

export function HandlerPane({ open, change }: PartProps & { open: string }) {
  const { namespace, rest: name } = splitKey(open)
  const query = useWaitingOf(namespace, name)
  const t = text.handler
  return (
    <DetailPane
      id={open}
      label={`${t.label}: ${name}`}
      title={name}
      subtitle={namespace}
      mark={query.data && marks[stateOf(query.data.waiting)]}
      onClose={() => change({ handler: undefined })}
    >
      <Group gap="sm">
        <Retry namespace={namespace} name={name} retrying={query.data?.waiting?.retrying ?? 0} />
        <Button size="xs" variant="default" onClick={() => change({ tab: 'letters', of: name, sort: undefined, ns: namespace })}>
          {t.letters}
        </Button>
        <Button
          size="xs"
          variant="default"
          renderRoot={(props) => (
            <Link to="/pipelines" search={{ ns: namespace, tab: 'handlers', open: `${namespace}/${name}` }} {...props} />
          )}
        >
          {t.definition}
        </Button>
      </Group>
      <QueryView query={query}>
        {({ waiting }) => (waiting ? <HandlerBody waiting={waiting} /> : <EmptyState title={t.nothing} />)}
      </QueryView>
    </DetailPane>
  )
}

function HandlerBody({ waiting }: { waiting: Waiting }) {
  const t = text.handler
  const of = (counts: ClassCounts) => (counts.total === 0 ? undefined : `${shared.number(counts.total)}: ${t.classes(counts)}`)
  const at = (ms = 0) => (ms > 0 ? <Moment at={ms / 1000} /> : undefined)
  const list = waiting.deliveries ?? []
  return (
    <>
      <Section title={t.health}>
        <Facts
          facts={[
            [t.failingSince, at(waiting.failing_since)],
            [t.failures, waiting.failures],
            [t.died, waiting.died],
            [t.lastFailed, at(waiting.last_failed)],
            [t.lastDelivered, at(waiting.last_delivered)],
          ]}
        />
        {waiting.last_error ? (
          <Output>{waiting.last_error}</Output>
        ) : (
          <Text size="sm" c="dimmed">
            {t.noError}
          </Text>
        )}
      </Section>
      <Section title={t.counts}>
        <Facts
          facts={[
            [t.memory, of(waiting.memory)],
            [t.disk, of(waiting.disk)],
            [t.parked, of(waiting.parked)],
            [text.handlers.columns.retrying, waiting.retrying > 0 ? shared.number(waiting.retrying) : undefined],
            [t.running, waiting.running > 0 ? shared.number(waiting.running) : undefined],
            [
              t.shed,
              waiting.shed.total > 0 ? (
                <>
                  {of(waiting.shed)} <small>{t.shedHelp}</small>
                </>
              ) : undefined,
            ],
            [text.handlers.columns.oldest, waiting.oldest ? <Age at={waiting.oldest / 1000} /> : undefined],
            [text.handlers.columns.next, waiting.next ? <Until at={waiting.next} /> : undefined],
          ]}
        />
      </Section>
      {list.length > 0 && (
        <Section title={t.waiting}>
          <ul className={css.list}>
            {list.map(({ id, entity, check, status, for: what, next, attempts, error, group, member }) => (
              <li key={id}>
                <StatusMark mark={markOf(status)} size={14} />
                <div>
                  <Link to="/trace" search={{ ns: waiting.namespace, event: `${waiting.namespace}/${entity}/${check}` }}>
                    {check}, {entity}
                  </Link>{' '}
                  <span className={css.dim}>
                    {t.columns.for} {t.fors[what] ?? what}
                    {group && ` (${group})`}, {attempts > 0 && `${t.attempts(attempts)}, `}
                    <Until at={next} />
                    {member && `, ${member}`}
                  </span>
                  {error && <p className={css.error}>{error}</p>}
                </div>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  )
}

function Retry({ namespace, name, retrying }: { namespace: string; name: string; retrying: number }) {
  const { api } = useApp()
  const client = useQueryClient()
  const rights = useRights(namespace)
  const [opened, { open, close }] = useDisclosure()
  const act = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/waiting/retry', { params: { path: { namespace } }, body: { handler: name } }),
      ),
    onSuccess: ({ count }) => {
      close()
      done(text.handler.retried(count, name))
      void client.invalidateQueries({ queryKey: ['waiting'] })
    },
  })
  return (
    <>
      <Button
        size="xs"
        onClick={open}
        disabled={retrying === 0 || !rights.can('create', 'deadletters')}
        title={rights.why('create', 'deadletters') ?? (retrying === 0 ? text.handler.noRetry : undefined)}
      >
        {text.handler.retry}
      </Button>
      <FormDialog title={`${text.handler.retry}: ${name}`} opened={opened} onClose={close} act={act} label={text.handler.retry}>
        <Text size="sm">{text.handler.retryHelp(retrying)}</Text>
      </FormDialog>
    </>
  )
}

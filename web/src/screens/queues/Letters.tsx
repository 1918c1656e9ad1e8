import { Button, Group, Select } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import type { DeadLetter } from '../../api/types'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { Age } from '../../app/time'
import { text as shared } from '../../text'
import { text } from '../../text/queues'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, moment, Output, Section } from '../../widgets/Facts'
import { markOf, StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { plainOutput } from '../events/present'
import { routeOf } from '../trace/present'
import type { PartProps } from './part'
import css from './Queues.module.css'
import { RedriveButton, RemoveButton } from './Redrive'
import { splitKey } from './search'
import { useLetters, useWaiting } from './use-queues'

const keyOf = ({ namespace, id }: DeadLetter) => `${namespace}/${id}`

/** Chooses whose dead letters are listed, and acts on all of them. */
export function LetterBar({ namespace, search, change }: PartProps) {
  const letters = useLetters(namespace, search.of)
  const waiting = useWaiting(namespace)
  const kept = letters.data?.pages.flatMap((page) => page.letters) ?? []
  const names = new Set([
    ...kept.map(({ handler }) => handler),
    ...(waiting.data ?? []).map(({ handler }) => handler),
    ...(search.of ? [search.of] : []),
  ])
  const choice = search.of === undefined ? { all: true } : { handler: search.of }
  return (
    <Group gap="sm">
      <Select
        size="xs"
        w={170}
        searchable
        aria-label={text.letters.filter}
        value={search.of ?? ''}
        data={[{ value: '', label: text.letters.all }, ...[...names].sort().map((name) => ({ value: name, label: name }))]}
        allowDeselect={false}
        onChange={(of) => change({ of: of || undefined, letter: undefined })}
      />
      {kept.length > 0 && (
        <>
          <RedriveButton namespace={namespace} choice={choice} label={text.letters.redriveAll(text.letters.these)} />
          <RemoveButton namespace={namespace} choice={choice} label={text.letters.deleteAll(text.letters.these)} />
        </>
      )}
    </Group>
  )
}

export function LetterTable({ namespace, search, change }: PartProps) {
  const query = useLetters(namespace, search.of)
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set())
  const c = text.letters.columns
  const columns: Column<DeadLetter>[] = [
    {
      id: 'state',
      title: c.state,
      width: '92px',
      order: byNumber((row) => row.status),
      cell: ({ status }) => (
        <span className={css.state}>
          <StatusMark mark={markOf(status)} size={14} /> {shared.status(status)}
        </span>
      ),
    },
    { id: 'check', title: c.check, order: byText((row) => row.check), cell: (row) => row.check },
    { id: 'entity', title: c.entity, order: byText((row) => row.entity), cell: (row) => row.entity },
    { id: 'handler', title: c.handler, wide: true, order: byText((row) => row.handler), cell: (row) => row.handler },
    { id: 'reason', title: c.reason, width: 'minmax(0, 2fr)', wide: true, cell: (row) => <span title={row.reason}>{row.reason}</span> },
    {
      id: 'attempts',
      title: c.attempts,
      width: '72px',
      end: true,
      wide: true,
      order: byNumber((row) => row.attempts),
      cell: (row) => row.attempts,
    },
    {
      id: 'last',
      title: c.last,
      width: '104px',
      wide: true,
      order: byNumber((row) => -row.last),
      cell: (row) => <Age at={row.last / 1000} />,
    },
  ]
  return (
    <QueryView query={query}>
      {({ pages }) => {
        const letters = pages.flatMap((page) => page.letters)
        const chosen = letters.filter((letter) => picked.has(keyOf(letter)))
        return (
          <>
            <DataTable
              label={text.tabs.letters}
              columns={columns}
              rows={letters}
              keyOf={keyOf}
              selected={search.letter}
              onOpen={(letter) => change({ letter })}
              sort={search.sort ?? 'last'}
              onSort={(sort) => change({ sort })}
              picked={picked}
              onPick={setPicked}
              empty={<EmptyState title={text.letters.none} help={text.letters.noneHelp} />}
            />
            {(chosen.length > 0 || query.hasNextPage) && (
              <div className={css.foot}>
                {chosen.length > 0 && <Chosen letters={chosen} onDone={() => setPicked(new Set())} />}
                {query.hasNextPage && (
                  <>
                    <span>{text.letters.shown(letters.length, true)}</span>
                    <Button size="xs" variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                      {text.letters.more}
                    </Button>
                  </>
                )}
              </div>
            )}
          </>
        )
      }}
    </QueryView>
  )
}

/** What can be done with ticked dead letters, namespace by namespace: an ID is unique in its own. */
function Chosen({ letters, onDone }: { letters: DeadLetter[]; onDone: () => void }) {
  const namespaces = [...new Set(letters.map(({ namespace }) => namespace))]
  return (
    <>
      {namespaces.map((namespace) => {
        const ids = letters.filter((letter) => letter.namespace === namespace).map(({ id }) => id)
        const what = `${text.letters.shown(ids.length, false)}${namespaces.length > 1 ? ` (${namespace})` : ''}`
        return (
          <Group key={namespace} gap="xs">
            <RedriveButton namespace={namespace} choice={{ ids }} label={text.letters.redriveAll(what)} onDone={onDone} />
            <RemoveButton namespace={namespace} choice={{ ids }} label={text.letters.deleteAll(what)} onDone={onDone} />
          </Group>
        )
      })}
    </>
  )
}

export function LetterPane({ namespace: listed, open, search, change }: PartProps & { open: string }) {
  const { api } = useApp()
  const { namespace, rest: id } = splitKey(open)
  const query = useQuery({
    queryKey: ['deadletters', namespace, 'one', id],
    retry: false,
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/deadletters/{id}', { params: { path: { namespace, id } } })),
  })
  const letter = query.data
  const close = () => change({ letter: undefined })
  const t = text.letters
  return (
    <DetailPane
      id={open}
      label={`${t.label}: ${id}`}
      title={letter?.check ?? t.label}
      subtitle={letter ? `${letter.entity} · ${letter.handler} · ${namespace}` : id}
      mark={letter && markOf(letter.status)}
      onClose={close}
    >
      <Group gap="sm">
        <RedriveButton namespace={namespace} choice={{ ids: [id] }} label={text.redrive.title} onDone={close} />
        <RemoveButton namespace={namespace} choice={{ ids: [id] }} label={shared.delete} onDone={close} />
        {letter && (
          <>
            <Button
              size="xs"
              variant="default"
              renderRoot={(props) => (
                <Link to="/trace" search={{ ns: search.ns, event: `${namespace}/${letter.entity}/${letter.check}` }} {...props} />
              )}
            >
              {t.trace}
            </Button>
            <Button
              size="xs"
              variant="default"
              renderRoot={(props) => (
                <Link
                  to="/events"
                  search={{ ns: listed === everywhere ? undefined : listed, event: `${namespace}/${letter.entity}/${letter.check}` }}
                  {...props}
                />
              )}
            >
              {t.open}
            </Button>
          </>
        )}
      </Group>
      <QueryView query={query}>
        {(one) => (
          <>
            <Section title={t.why}>
              <Facts
                facts={[
                  [t.reason, one.reason],
                  [t.attempts, one.attempts],
                  [t.first, moment(one.first / 1000)],
                  [t.last, moment(one.last / 1000)],
                  [t.route, routeOf(one)],
                  [t.id, <code key="id">{one.id}</code>],
                ]}
              />
            </Section>
            {one.output && (
              <Section title={t.output}>
                <Output>{plainOutput(one.output)}</Output>
              </Section>
            )}
            <Section title={t.event}>
              <Output>{one.event ? JSON.stringify(one.event, null, 2) : t.noEvent}</Output>
            </Section>
          </>
        )}
      </QueryView>
    </DetailPane>
  )
}

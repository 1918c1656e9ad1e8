import { Button, Skeleton } from '@mantine/core'
import { useMemo, useState } from 'react'
import { Age } from '../../app/time'
import type { EntityRow } from '../../api/types'
import { entityKeyOf, type EntityList } from '../../live/entity-list'
import { text } from '../../text'
import { entitiesText as t } from '../../text/entities'
import { DataTable, type Column } from '../../widgets/DataTable'
import { useHold } from '../events/use-event-list'
import css from './EntitiesScreen.module.css'
import { AgentWord, WorstWord } from './marks'
import { agentOf, failingOf } from './present'

interface Props {
  list: EntityList
  namespaces: boolean
  sort: string | undefined
  onSort: (sort: string | undefined) => void
  selected: string | undefined
  onOpen: (key: string | undefined) => void
  picked: ReadonlySet<string> | 'all'
  onPick: (picked: ReadonlySet<string>) => void
}

export function EntityRows({ list, namespaces, sort, onSort, selected, onOpen, picked, onPick }: Props) {
  const [element, setElement] = useState<HTMLDivElement | null>(null)
  useHold(list, element)
  const columns = useMemo(() => columnsOf(namespaces), [namespaces])
  if (!list.ready) return <Loading />
  return (
    <>
      {list.waiting > 0 && (
        <Button className={css.pill} size="xs" radius="xl" title={text.pendingHelp} onClick={() => list.hold(false)}>
          {text.pending(list.waiting)}
        </Button>
      )}
      <DataTable
        label={t.title}
        columns={columns}
        rows={list}
        keyOf={entityKeyOf}
        selected={selected}
        onOpen={onOpen}
        sort={sort}
        onSort={onSort}
        picked={picked}
        onPick={onPick}
        empty={null}
        onElement={setElement}
      />
    </>
  )
}

function Loading() {
  return (
    <div aria-busy="true" aria-label={text.loading(0)} role="status">
      {Array.from({ length: 8 }, (_, i) => (
        <Skeleton key={i} height={18} m="md" width={`${90 - ((i * 17) % 40)}%`} />
      ))}
    </div>
  )
}

function columnsOf(namespaces: boolean): Column<EntityRow>[] {
  const c = t.columns
  return [
    {
      id: 'state',
      title: c.state,
      width: '96px',
      order: 'server',
      cell: (row) => (row.worst === undefined ? <AgentWord agent={agentOf(row)} /> : <WorstWord worst={row.worst} />),
    },
    {
      id: 'name',
      title: c.name,
      width: 'minmax(110px, 1.6fr)',
      order: 'server',
      cell: ({ name, namespace }) => (
        <span className={css.name} title={name}>
          {name}
          {namespaces && <small>{namespace}</small>}
        </span>
      ),
    },
    {
      id: 'agent',
      title: c.agent,
      width: '96px',
      wide: true,
      cell: (row) => (
        <span title={row.backend && t.connectedTo(row.backend)}>
          <AgentWord agent={agentOf(row)} />
        </span>
      ),
    },
    {
      id: 'failing',
      title: c.failing,
      width: '68px',
      end: true,
      wide: true,
      cell: (row) => (row.events ? t.failing(failingOf(row), row.events.total) : '–'),
    },
    {
      id: 'os',
      title: c.os,
      width: 'minmax(60px, 0.8fr)',
      wide: true,
      cell: ({ os, platform }) => [os, platform].filter((part) => part !== '').join(' · '),
    },
    { id: 'version', title: c.version, width: '68px', order: 'server', wide: true, cell: ({ version }) => version },
    {
      id: 'subscriptions',
      title: c.subscriptions,
      width: 'minmax(70px, 1fr)',
      wide: true,
      cell: ({ subscriptions, name }) => (subscriptions ?? []).filter((one) => one !== `entity:${name}`).join(', '),
    },
    {
      id: 'last_seen',
      title: c.last_seen,
      width: '68px',
      end: true,
      order: 'server',
      cell: ({ last_seen }) => (last_seen > 0 ? <Age at={last_seen} /> : text.never),
    },
  ]
}

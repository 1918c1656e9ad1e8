import { Alert, Autocomplete, Button, Text } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState, useSyncExternalStore } from 'react'
import { unwrap } from '../../api/client'
import type { APIKey } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { Moment } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { accessText as t } from '../../text/access'
import { CopyButton } from '../../widgets/CopyButton'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, moment } from '../../widgets/Facts'
import { FormDialog } from '../../widgets/FormDialog'
import { QueryView } from '../../widgets/QueryView'
import { done } from '../../widgets/toast'
import css from './AccessScreen.module.css'
import type { ViewProps } from './view'
import { has } from './rules'
import { useUsers } from './use-access'

const nameOf = (key: APIKey): string => key.metadata?.name ?? ''

export function Keys({ search, change, frame }: ViewProps) {
  const { api } = useApp()
  const rights = useRights(everywhere)
  const query = useQuery({
    queryKey: definitionsKey('apikeys'),
    queryFn: async () => (await unwrap(api.GET('/api/core/v2/apikeys'))) ?? [],
    retry: false,
  })
  const keys = query.data ?? []
  const rows = keys.filter((key) => has(search.q ?? '', nameOf(key), key.username, key.metadata?.created_by))
  const open = keys.find((key) => nameOf(key) === search.open)
  const why = rights.why('create', 'apikeys')
  const remove = rights.why('delete', 'apikeys')
  const make = (
    <Button size="xs" disabled={why !== undefined} title={why} onClick={() => change({ act: 'new' })}>
      {t.newKey}
    </Button>
  )
  return frame({
    bar: make,
    detail: search.open !== undefined && query.isSuccess && (
      <DetailPane
        id={search.open}
        label={`${t.columns.key}: ${search.open}`}
        title={search.open}
        onClose={() => change({ open: undefined })}
      >
        {open ? (
          <>
            <Button size="xs" variant="default" disabled={remove !== undefined} title={remove} onClick={() => change({ act: 'delete' })}>
              {t.deleteKey}
            </Button>
            <Facts
              facts={[
                [t.fact.name, <code>{nameOf(open)}</code>],
                [t.fact.user, open.username],
                [t.fact.made, moment(open.created_at)],
                [t.fact.by, open.metadata?.created_by],
              ]}
            />
          </>
        ) : (
          <EmptyState title={text.missing} help={t.missing} />
        )}
      </DetailPane>
    ),
    children: (
      <>
        <QueryView query={query}>
          {() => (
            <DataTable
              label={t.columns.key}
              columns={columns}
              rows={rows}
              keyOf={nameOf}
              selected={search.open}
              onOpen={(key) => change({ open: key })}
              sort={search.sort}
              onSort={(sort) => change({ sort })}
              empty={
                keys.length === 0 ? (
                  <EmptyState title={t.emptyKeys} help={t.emptyKeysHelp}>
                    {make}
                  </EmptyState>
                ) : (
                  <EmptyState title={t.nothing} help={t.nothingHelp} />
                )
              }
            />
          )}
        </QueryView>
        {search.act === 'new' && why === undefined && <NewKey onClose={() => change({ act: undefined })} />}
        {open && search.act === 'delete' && (
          <DeleteKey apiKey={open} onClose={(deleted) => change({ act: undefined, ...(deleted ? { open: undefined } : {}) })} />
        )}
      </>
    ),
  })
}

const columns: Column<APIKey>[] = [
  { id: 'key', title: t.columns.key, width: 'minmax(140px, 2fr)', mono: true, order: byText(nameOf), cell: nameOf },
  {
    id: 'owner',
    title: t.columns.owner,
    width: 'minmax(80px, 1fr)',
    order: byText(({ username = '' }) => username),
    cell: ({ username }) => username,
  },
  {
    id: 'made',
    title: t.columns.made,
    width: '215px',
    wide: true,
    order: byNumber(({ created_at = 0 }) => created_at),
    cell: ({ created_at = 0 }) => <Moment at={created_at} />,
  },
  {
    id: 'by',
    title: t.columns.by,
    width: 'minmax(80px, 1fr)',
    wide: true,
    order: byText(({ metadata }) => metadata?.created_by ?? ''),
    cell: ({ metadata }) => metadata?.created_by,
  },
]

/** Makes a key, and shows it this once. */
function NewKey({ onClose }: { onClose: () => void }) {
  const { api, session } = useApp()
  const client = useQueryClient()
  const state = useSyncExternalStore(session.subscribe, () => session.state)
  const users = useUsers()
  const [username, setUsername] = useState(state.phase === 'in' ? state.user : '')
  const act = useMutation({
    mutationFn: async () => {
      const call = await api.POST('/api/core/v2/apikeys', { body: { username } as APIKey })
      await unwrap(Promise.resolve(call))
      return call.response.headers.get('Location')?.split('/').at(-1) ?? ''
    },
    onSuccess: () => void client.invalidateQueries({ queryKey: definitionsKey('apikeys') }),
  })
  const key = act.data
  return (
    <FormDialog
      opened
      title={key === undefined ? t.newKey : t.keyMade}
      onClose={onClose}
      act={{ ...act, mutate: () => (key === undefined ? act.mutate() : onClose()) }}
      label={key === undefined ? t.makeKey : text.close}
      disabled={username === ''}
    >
      {key === undefined ? (
        <>
          <Text size="sm">{t.keyHelp}</Text>
          <Autocomplete
            label={t.keyUser}
            required
            data={(users.data ?? []).map(({ username = '' }) => username)}
            value={username}
            onChange={setUsername}
          />
        </>
      ) : (
        <>
          <Alert color="yellow" role="status">
            {t.keyOnce}
          </Alert>
          <div className={css.key}>
            <code>{key}</code>
            <CopyButton value={() => key} label={t.copyKey} />
          </div>
        </>
      )}
    </FormDialog>
  )
}

function DeleteKey({ apiKey, onClose }: { apiKey: APIKey; onClose: (deleted: boolean) => void }) {
  const { api } = useApp()
  const client = useQueryClient()
  const act = useMutation({
    mutationFn: () => unwrap(api.DELETE('/api/core/v2/apikeys/{name}', { params: { path: { name: nameOf(apiKey) } } })),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: definitionsKey('apikeys') })
      done(t.keyDeleted)
      onClose(true)
    },
  })
  return (
    <FormDialog opened title={`${t.deleteKey}: ${nameOf(apiKey)}`} onClose={() => onClose(false)} act={act} label={text.delete} danger>
      <Text size="sm">{t.deleteKeyHelp(apiKey.username ?? '')}</Text>
    </FormDialog>
  )
}

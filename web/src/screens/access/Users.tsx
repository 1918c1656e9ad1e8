import { Button, Group, PasswordInput, TagsInput, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import type { RoleBinding, User } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { accessText as t } from '../../text/access'
import { byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, list, Section } from '../../widgets/Facts'
import { FormDialog } from '../../widgets/FormDialog'
import { StatusMark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { done } from '../../widgets/toast'
import css from './AccessScreen.module.css'
import type { ViewProps } from './view'
import { bindingsOf, givingWords, has, ruleWords, type Row } from './rules'
import { useBindings, useUsers } from './use-access'

const groupsOf = (user: User): readonly string[] => user.groups ?? []

export function Users({ search, namespace, change, frame }: ViewProps) {
  const query = useUsers()
  const { rows: bindings } = useBindings(namespace)
  const rights = useRights(everywhere)
  const users = query.data ?? []
  const rows = users.filter((one) => has(search.q ?? '', one.username, ...groupsOf(one)))
  const open = users.find(({ username }) => username === search.open)
  const close = () => change({ act: undefined })
  const why = rights.why('create', 'users')
  const known = [
    ...new Set([
      ...users.flatMap(groupsOf),
      ...bindings.flatMap(({ one }) => (one.subjects ?? []).filter(({ type }) => type === 'Group').map(({ name }) => name ?? '')),
    ]),
  ].sort()
  return frame({
    bar: (
      <Button size="xs" disabled={why !== undefined} title={why} onClick={() => change({ act: 'new' })}>
        {t.newUser}
      </Button>
    ),
    detail: search.open !== undefined && query.isSuccess && (
      <UserDetail
        name={search.open}
        user={open}
        bindings={bindings}
        namespace={namespace}
        onClose={() => change({ open: undefined })}
        onStep={(by) => {
          const next = rows[rows.findIndex(({ username }) => username === search.open) + by]
          if (next) change({ open: next.username })
        }}
        onAct={(act) => change({ act })}
      />
    ),
    children: (
      <>
        <QueryView query={query}>
          {() => (
            <DataTable
              label={t.columns.user}
              columns={columnsOf(bindings)}
              rows={rows}
              keyOf={({ username = '' }) => username}
              selected={search.open}
              onOpen={(key) => change({ open: key })}
              sort={search.sort}
              onSort={(sort) => change({ sort })}
              empty={<EmptyState title={t.nothing} help={t.nothingHelp} />}
            />
          )}
        </QueryView>
        {search.act === 'new' && why === undefined && <NewUser known={known} bindings={bindings} onClose={close} />}
        {open && search.act === 'groups' && <ChangeGroups user={open} known={known} bindings={bindings} onClose={close} />}
        {open && search.act === 'password' && <SetPassword user={open} onClose={close} />}
        {open && search.act === 'switch' && <Switch user={open} onClose={close} />}
      </>
    ),
  })
}

const columnsOf = (bindings: readonly Row<RoleBinding>[]): Column<User>[] => [
  {
    id: 'user',
    title: t.columns.user,
    width: 'minmax(120px, 1fr)',
    order: byText(({ username = '' }) => username),
    cell: ({ username }) => username,
  },
  { id: 'state', title: t.columns.state, width: 'minmax(110px, 160px)', order: byText(stateWord), cell: (user) => <State user={user} /> },
  {
    id: 'groups',
    title: t.columns.groups,
    width: 'minmax(100px, 2fr)',
    order: byText((user) => groupsOf(user).join()),
    cell: (user) => groupsOf(user).join(', '),
  },
  {
    id: 'bindings',
    title: t.columns.bindings,
    width: 'minmax(100px, 2fr)',
    wide: true,
    cell: (user) =>
      bindingsOf(bindings, user.username ?? '', groupsOf(user))
        .map(({ name }) => name)
        .join(', '),
  },
]

const stateWord = (user: User): string => (user.disabled ? t.states.disabled : user.no_password ? t.states.noPassword : t.states.enabled)

function State({ user }: { user: User }) {
  return (
    <span className={css.state}>
      <StatusMark mark={user.disabled ? 'unknown' : 'ok'} /> {stateWord(user)}
    </span>
  )
}

interface DetailProps {
  name: string
  user: User | undefined
  bindings: readonly Row<RoleBinding>[]
  namespace: string
  onClose: () => void
  onStep: (by: number) => void
  onAct: (act: string) => void
}

function UserDetail({ name, user, bindings, namespace, onClose, onStep, onAct }: DetailProps) {
  const { api } = useApp()
  const rights = useRights(everywhere)
  const query = useQuery({
    queryKey: ['rights', namespace, 'as', name, groupsOf(user ?? {}), bindings.length],
    enabled: user !== undefined,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/auth/rights', { params: { query: { as: name, ...(namespace === everywhere ? {} : { namespace }) } } }),
      ),
    retry: false,
  })
  if (!user) {
    return (
      <DetailPane id={name} label={name} title={name} onClose={onClose}>
        <EmptyState title={text.missing} help={t.missing} />
      </DetailPane>
    )
  }
  const why = rights.why('update', 'users')
  const mine = bindingsOf(bindings, name, groupsOf(user))
  const acts = [
    { act: 'groups', label: t.changeGroups, why },
    { act: 'password', label: t.setPassword, why },
    { act: 'switch', label: user.disabled ? t.enable : t.disable, why: user.disabled ? why : rights.why('delete', 'users') },
  ]
  return (
    <DetailPane id={name} label={`${t.columns.user}: ${name}`} title={name} subtitle={stateWord(user)} onClose={onClose} onStep={onStep}>
      <Group gap="sm">
        {acts.map(({ act, label, why }) => (
          <Button key={act} size="xs" variant="default" disabled={why !== undefined} title={why} onClick={() => onAct(act)}>
            {label}
          </Button>
        ))}
      </Group>
      <Section title={t.groups}>
        <Facts
          facts={[
            [t.groups, list(groupsOf(user)) ?? '–'],
            [t.columns.state, <State user={user} />],
          ]}
        />
      </Section>
      <Section title={t.boundBy}>
        <ul className={css.lines}>
          {mine.length === 0 && <li className={css.muted}>{t.givesNothing}</li>}
          {mine.map((one) => (
            <li key={one.key}>{givingWords(one)}</li>
          ))}
        </ul>
      </Section>
      <Section title={t.mayDo}>
        <QueryView query={query} rows={2}>
          {(answer) => (
            <ul className={css.lines}>
              {(answer.rights ?? []).length === 0 && <li className={css.muted}>{t.mayNothing}</li>}
              {(answer.rights ?? []).map((right, i) => (
                <li key={i}>
                  {ruleWords(right)}
                  <small>{t.by(`${right.binding.type} ${right.binding.name}`, `${right.role.type} ${right.role.name}`)}</small>
                </li>
              ))}
            </ul>
          )}
        </QueryView>
      </Section>
    </DetailPane>
  )
}

/** A write about a user, after which the users are asked for anew. */
function useAct(call: () => Promise<unknown>, onDone: () => void) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: call,
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: definitionsKey('users') })
      onDone()
    },
  })
}

function Gives({ user, groups, bindings }: { user: string; groups: readonly string[]; bindings: readonly Row<RoleBinding>[] }) {
  const mine = bindingsOf(bindings, user, groups)
  return (
    <div role="status">
      <Text size="sm" c="dimmed">
        {mine.length === 0 ? t.givesNothing : t.gives}
      </Text>
      <ul className={css.lines}>
        {mine.map((one) => (
          <li key={one.key}>{givingWords(one)}</li>
        ))}
      </ul>
    </div>
  )
}

interface GroupsProps {
  known: string[]
  bindings: readonly Row<RoleBinding>[]
  onClose: () => void
}

function NewUser({ known, bindings, onClose }: GroupsProps) {
  const { api } = useApp()
  const [username, setUsername] = useState('')
  const [password, setPassword] = useState('')
  const [groups, setGroups] = useState<string[]>([])
  const act = useAct(
    () => unwrap(api.POST('/api/core/v2/users', { body: { username, password, groups, disabled: false } })),
    () => {
      done(t.userMade(username), () => unwrap(api.DELETE('/api/core/v2/users/{name}', { params: { path: { name: username } } })))
      onClose()
    },
  )
  return (
    <FormDialog opened title={t.newUser} onClose={onClose} act={act} label={t.newUser} disabled={username === '' || password === ''}>
      <TextInput
        label={t.username}
        required
        value={username}
        autoComplete="off"
        onChange={(event) => setUsername(event.currentTarget.value)}
        data-autofocus
      />
      <PasswordInput
        label={t.password}
        description={t.passwordHelp}
        required
        value={password}
        autoComplete="new-password"
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
      <TagsInput label={t.groups} description={t.groupsHelp} data={known} value={groups} onChange={setGroups} />
      <Gives user={username} groups={groups} bindings={bindings} />
    </FormDialog>
  )
}

function ChangeGroups({ user, known, bindings, onClose }: GroupsProps & { user: User }) {
  const { api } = useApp()
  const client = useQueryClient()
  const name = user.username ?? ''
  const before = groupsOf(user)
  const [groups, setGroups] = useState<string[]>([...before])
  const set = async (from: readonly string[], to: readonly string[]) => {
    for (const group of to)
      if (!from.includes(group)) await unwrap(api.PUT('/api/core/v2/users/{name}/groups/{group}', { params: { path: { name, group } } }))
    for (const group of from)
      if (!to.includes(group)) await unwrap(api.DELETE('/api/core/v2/users/{name}/groups/{group}', { params: { path: { name, group } } }))
  }
  const act = useAct(
    () => set(before, groups),
    () => {
      done(t.groupsSet(name), () => set(groups, before).finally(() => client.invalidateQueries({ queryKey: definitionsKey('users') })))
      onClose()
    },
  )
  const same = groups.length === before.length && groups.every((group) => before.includes(group))
  return (
    <FormDialog opened title={`${t.changeGroups}: ${name}`} onClose={onClose} act={act} label={text.save} disabled={same}>
      <TagsInput label={t.groups} description={t.groupsHelp} data={known} value={groups} onChange={setGroups} data-autofocus />
      <Gives user={name} groups={groups} bindings={bindings} />
    </FormDialog>
  )
}

function SetPassword({ user, onClose }: { user: User; onClose: () => void }) {
  const { api } = useApp()
  const name = user.username ?? ''
  const [password, setPassword] = useState('')
  const act = useAct(
    () =>
      unwrap(
        api.PUT('/api/core/v2/users/{name}', {
          params: { path: { name } },
          body: { username: name, password, groups: user.groups ?? [], disabled: user.disabled ?? false },
        }),
      ),
    () => {
      done(t.passwordSet(name))
      onClose()
    },
  )
  return (
    <FormDialog opened title={`${t.setPassword}: ${name}`} onClose={onClose} act={act} label={t.setPassword} disabled={password === ''}>
      <Text size="sm">{t.setPasswordHelp}</Text>
      <PasswordInput
        label={t.password}
        description={t.passwordHelp}
        required
        value={password}
        autoComplete="new-password"
        onChange={(event) => setPassword(event.currentTarget.value)}
        data-autofocus
      />
    </FormDialog>
  )
}

/** Disables a user, or enables it again. */
function Switch({ user, onClose }: { user: User; onClose: () => void }) {
  const { api } = useApp()
  const client = useQueryClient()
  const name = user.username ?? ''
  const params = { path: { name } }
  const to = (disabled: boolean) =>
    disabled
      ? unwrap(api.DELETE('/api/core/v2/users/{name}', { params }))
      : unwrap(api.PUT('/api/core/v2/users/{name}/reinstate', { params }))
  const off = !user.disabled
  const act = useAct(
    () => to(off),
    () => {
      done(off ? t.disabled(name) : t.enabled(name), () =>
        to(!off).finally(() => client.invalidateQueries({ queryKey: definitionsKey('users') })),
      )
      onClose()
    },
  )
  const label = off ? t.disable : t.enable
  return (
    <FormDialog opened title={`${label}: ${name}`} onClose={onClose} act={act} label={label} danger={off}>
      <Text size="sm">{off ? t.disableHelp : t.enableHelp}</Text>
    </FormDialog>
  )
}

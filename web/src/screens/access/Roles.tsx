import { Button, Group } from '@mantine/core'
import { useMemo } from 'react'
import type { Definition } from '../../api/definitions'
import type { Role, RoleBinding } from '../../api/types'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { DefinitionEditor } from '../../editor'
import { yamlOf } from '../../editor/yaml'
import { text } from '../../text'
import { accessText as t } from '../../text/access'
import { CopyButton } from '../../widgets/CopyButton'
import { byText, DataTable, type Column } from '../../widgets/DataTable'
import { DeleteDefinition } from '../../widgets/DeleteDefinition'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Section } from '../../widgets/Facts'
import { QueryView } from '../../widgets/QueryView'
import css from './AccessScreen.module.css'
import type { ViewProps } from './view'
import { fresh, givenBy, has, ruleWords, subjectsOf, type Row } from './rules'
import { useBindings, useRoles, type Both } from './use-access'

export function Roles(props: ViewProps) {
  const both = useRoles(props.namespace)
  const { rows: bindings } = useBindings(props.namespace)
  return (
    <View
      {...props}
      what="roles"
      label={t.newRole}
      both={both}
      texts={({ one }) => (one.rules ?? []).map(ruleWords)}
      columns={roleColumns}
      detail={(row) => {
        const given = givenBy(bindings, row)
        return (
          <>
            <Section title={t.rules}>
              <ul className={css.lines}>
                {(row.one.rules ?? []).map((rule, i) => (
                  <li key={i}>{ruleWords(rule)}</li>
                ))}
              </ul>
            </Section>
            <Section title={t.boundBy}>
              <ul className={css.lines}>
                {given.length === 0 && <li className={css.muted}>{t.notBound}</li>}
                {given.map((one) => (
                  <li key={one.key}>
                    {subjectsOf(one.one).join(', ')}
                    <small>{[`${one.kind.type} ${one.name}`, one.namespace].filter(Boolean).join(' · ')}</small>
                  </li>
                ))}
              </ul>
            </Section>
          </>
        )
      }}
    />
  )
}

export function Bindings(props: ViewProps) {
  return (
    <View
      {...props}
      what="bindings"
      label={t.newBinding}
      both={useBindings(props.namespace)}
      texts={({ one }) => [one.role_ref?.name ?? '', ...subjectsOf(one)]}
      columns={bindingColumns}
      detail={({ one }) => (
        <>
          <Section title={t.columns.role}>
            <Facts facts={[[one.role_ref?.type ?? '', one.role_ref?.name]]} />
          </Section>
          <Section title={t.columns.subjects}>
            <ul className={css.lines}>
              {subjectsOf(one).map((subject) => (
                <li key={subject}>{subject}</li>
              ))}
            </ul>
          </Section>
        </>
      )}
    />
  )
}

interface Props<T> extends ViewProps {
  what: 'roles' | 'bindings'
  /** On the button that makes one. */
  label: string
  both: Both<T>
  /** What the search looks at, besides the name. */
  texts: (row: Row<T>) => string[]
  columns: Column<Row<T>>[]
  detail: (row: Row<T>) => React.ReactNode
}

/** Roles or bindings, those of the whole cluster first. */
function View<T extends Role | RoleBinding>({
  search,
  namespace,
  change,
  frame,
  what,
  label,
  both: { query, rows: all },
  texts,
  columns,
  detail,
}: Props<T>) {
  const rights = useRights(namespace)
  const rows = all.filter((row) => has(search.q ?? '', row.name, row.namespace, row.kind.type, ...texts(row)))
  const open = all.find(({ key }) => key === search.open)
  const close = () => change({ act: undefined })
  const made = useMemo(() => fresh(what, namespace === everywhere ? undefined : namespace), [what, namespace])
  const why = rights.why('create', made.kind.role)
  const definition = open?.one as Definition | undefined
  const edit = open && rights.why('update', open.kind.role)
  const remove = open && rights.why('delete', open.kind.role)
  return frame({
    bar: (
      <Button size="xs" disabled={why !== undefined} title={why} onClick={() => change({ act: 'new' })}>
        {label}
      </Button>
    ),
    detail:
      search.open !== undefined &&
      query.isSuccess &&
      (open && definition ? (
        <DetailPane
          id={open.key}
          label={`${open.kind.type}: ${open.name}`}
          title={open.name}
          subtitle={[open.kind.type, open.namespace].filter(Boolean).join(' · ')}
          tools={<CopyButton value={() => yamlOf(open.kind, definition)} label={text.copyYAML} />}
          onClose={() => change({ open: undefined })}
          onStep={(by) => {
            const next = rows[rows.indexOf(open) + by]
            if (next) change({ open: next.key })
          }}
        >
          <Group gap="sm">
            <Button size="xs" variant="default" disabled={edit !== undefined} title={edit} onClick={() => change({ act: 'edit' })}>
              {text.edit}
            </Button>
            <Button size="xs" variant="default" disabled={remove !== undefined} title={remove} onClick={() => change({ act: 'delete' })}>
              {text.delete}
            </Button>
          </Group>
          {detail(open)}
        </DetailPane>
      ) : (
        <DetailPane id={search.open} label={search.open} title={search.open.split('/').at(-1)} onClose={() => change({ open: undefined })}>
          <EmptyState title={text.missing} help={t.missing} />
        </DetailPane>
      )),
    children: (
      <>
        <QueryView query={query}>
          {() => (
            <DataTable
              label={label}
              columns={columns}
              rows={rows}
              keyOf={({ key }) => key}
              selected={search.open}
              onOpen={(key) => change({ open: key })}
              sort={search.sort}
              onSort={(sort) => change({ sort })}
              empty={<EmptyState title={t.nothing} help={t.nothingHelp} />}
            />
          )}
        </QueryView>
        {search.act === 'new' && why === undefined && (
          <DefinitionEditor kind={made.kind} definition={made.definition} fresh onClose={close} />
        )}
        {open && definition && search.act === 'edit' && <DefinitionEditor kind={open.kind} definition={definition} onClose={close} />}
        {open && definition && search.act === 'delete' && (
          <DeleteDefinition
            kind={open.kind}
            definition={definition}
            onClose={(deleted) => change({ act: undefined, ...(deleted ? { open: undefined } : {}) })}
          />
        )}
      </>
    ),
  })
}

const place = <T,>(): Column<Row<T>>[] => [
  { id: 'name', title: t.columns.name, width: 'minmax(120px, 1.4fr)', order: byText(({ name }) => name), cell: ({ name }) => name },
  { id: 'kind', title: t.columns.kind, width: '150px', wide: true, order: byText(({ kind }) => kind.type), cell: ({ kind }) => kind.type },
  {
    id: 'namespace',
    title: t.columns.namespace,
    width: '110px',
    wide: true,
    order: byText(({ namespace }) => namespace),
    cell: ({ namespace }) => namespace,
  },
]

const roleColumns: Column<Row<Role>>[] = [
  ...place<Role>(),
  { id: 'rules', title: t.columns.rules, width: 'minmax(120px, 3fr)', cell: ({ one }) => (one.rules ?? []).map(ruleWords).join('; ') },
]

const bindingColumns: Column<Row<RoleBinding>>[] = [
  ...place<RoleBinding>(),
  {
    id: 'role',
    title: t.columns.role,
    width: 'minmax(100px, 1fr)',
    order: byText(({ one }) => one.role_ref?.name ?? ''),
    cell: ({ one }) => one.role_ref?.name,
  },
  { id: 'subjects', title: t.columns.subjects, width: 'minmax(100px, 2fr)', cell: ({ one }) => subjectsOf(one).join(', ') },
]

import { Alert, Group } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Contact, Rota } from '../../api/types'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { oncall as t } from '../../text/oncall'
import { byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Pairs, Section } from '../../widgets/Facts'
import { QueryView } from '../../widgets/QueryView'
import { partsOf } from '../silences/model'
import { DeleteButton } from './DeleteButton'
import { EditButton } from './EditButton'
import { reachOf, shiftAt, type HandlerLike } from './model'
import css from './OnCallScreen.module.css'
import { Warn } from './Rotas'

const c = t.contacts

export interface ListProps {
  namespace: string
  selected: string | undefined
  onOpen: (key: string | undefined) => void
  sort: string | undefined
  onSort: (sort: string | undefined) => void
}

const keyOf = ({ metadata }: Contact) => `${metadata?.namespace}/${metadata?.name}`

function useAround(namespace: string) {
  const { definitions } = useApp()
  const handlers = useQuery({
    queryKey: definitionsKey('handlers', namespace),
    retry: false,
    queryFn: () => definitions.list<HandlerLike & Definition>(kinds.handlers, namespace),
  })
  const rotas = useQuery({
    queryKey: definitionsKey('rotas', namespace),
    retry: false,
    queryFn: () => definitions.list<Rota & Definition>(kinds.rotas, namespace),
  })
  return { handlers: handlers.data, rotas: rotas.data ?? [] }
}

/** The rotas of a contact's namespace that name it. */
function rotasOf(contact: Contact, rotas: readonly Rota[]): string[] {
  const { namespace, name = '' } = contact.metadata ?? {}
  return rotas.flatMap((rota) =>
    rota.metadata?.namespace === namespace && (rota.contacts ?? []).includes(name) ? [rota.metadata?.name ?? ''] : [],
  )
}

/** Who can be notified, and how. */
export function Contacts({ namespace, ...rest }: ListProps) {
  const { definitions } = useApp()
  const query = useQuery({
    queryKey: definitionsKey('contacts', namespace),
    queryFn: () => definitions.list<Contact & Definition>(kinds.contacts, namespace),
  })
  const { handlers, rotas } = useAround(namespace)
  const columns: Column<Contact>[] = [
    {
      id: 'name',
      title: c.columns.name,
      width: 'minmax(100px, 1fr)',
      order: byText(keyOf),
      cell: ({ metadata }) => (
        <>
          <b>{metadata?.name}</b> {namespace === everywhere && <small className={css.sub}>{metadata?.namespace}</small>}
        </>
      ),
    },
    { id: 'full', title: c.columns.full, wide: true, cell: ({ full_name: full }) => full, order: byText((one) => one.full_name ?? '') },
    {
      id: 'reached',
      title: c.columns.reached,
      width: 'minmax(140px, 1.6fr)',
      cell: (one) => <Reached contact={one} handlers={handlers} />,
    },
    { id: 'user', title: c.columns.user, wide: true, cell: ({ user }) => user, order: byText((one) => one.user ?? '') },
    { id: 'turns', title: c.columns.turns, wide: true, cell: (one) => rotasOf(one, rotas).join(', ') },
  ]
  return (
    <QueryView query={query}>
      {(contacts) => (
        <DataTable
          label={t.parts[2]?.label ?? ''}
          columns={columns}
          rows={contacts}
          keyOf={keyOf}
          empty={<EmptyState title={c.empty} help={c.emptyHelp} />}
          {...rest}
        />
      )}
    </QueryView>
  )
}

function Reached({ contact, handlers }: { contact: Contact; handlers: readonly HandlerLike[] | undefined }) {
  const { by, broken } = reachOf(contact, handlers)
  const words = by.map(({ name, type }) => (type === undefined ? c.missing(name) : name)).join(', ')
  if (broken === undefined) return <>{[words, contact.email].filter(Boolean).join(' · ')}</>
  return <span className={css.broken}>{broken === 'none' ? c.noHandlers : broken === 'email' ? c.noEmail : words}</span>
}

/** All of a contact. */
export function ContactDetail({ id, onClose }: { id: string; onClose: () => void }) {
  const { definitions, api } = useApp()
  const { namespace, name } = partsOf(id)
  const query = useQuery({
    queryKey: definitionsKey('contacts', 'one', id),
    retry: false,
    queryFn: () => definitions.one<Contact & Definition>(kinds.contacts, namespace, name),
  })
  const warnings = useQuery({
    queryKey: definitionsKey('contacts', 'warnings', query.data),
    enabled: query.data !== undefined,
    retry: false,
    queryFn: () => definitions.put(kinds.contacts, query.data as Definition, true),
  })
  const { handlers, rotas } = useAround(namespace)
  const now = useQuery({
    queryKey: definitionsKey('rotas', 'now', namespace),
    refetchInterval: 10_000,
    retry: false,
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/oncall', { params: { path: { namespace }, query: {} } })),
  })
  const onCall = (rota: string) =>
    shiftAt((now.data ?? []).find((one) => one.rota === rota)?.shifts ?? [], Date.now() / 1000)?.contact === name
  return (
    <DetailPane id={id} label={c.label} title={name} subtitle={query.data?.full_name} onClose={onClose}>
      <QueryView query={query}>
        {(contact) => {
          const { by, broken } = reachOf(contact, handlers)
          return (
            <>
              <Group gap="sm">
                <EditButton kind={kinds.contacts} definition={contact} />
                <DeleteButton kind={kinds.contacts} definition={contact} onDeleted={onClose} />
              </Group>
              {(warnings.data?.warnings ?? []).map((warning) => (
                <Alert key={warning} color="yellow" mt="md" title={c.serverWarns}>
                  {warning}
                </Alert>
              ))}
              <Section title={c.handlers}>
                {broken === 'none' && <Warn>{c.noHandlers}</Warn>}
                {broken === 'email' && <Warn>{c.noEmail}</Warn>}
                <ul className={css.lines}>
                  {by.map((one) => (
                    <li key={one.name}>
                      {one.type === undefined ? (
                        <Warn>{c.missing(one.name)}</Warn>
                      ) : one.type === '' ? (
                        one.name
                      ) : (
                        c.handler(one.name, one.type)
                      )}
                    </li>
                  ))}
                </ul>
              </Section>
              <Section title={c.rotas}>
                <ul className={css.lines}>
                  {rotasOf(contact, rotas).map((rota) => (
                    <li key={rota}>
                      {rota} {onCall(rota) && <b>{c.onCallNow}</b>}
                    </li>
                  ))}
                </ul>
              </Section>
              <Section title={c.label}>
                <Facts
                  facts={[
                    [c.columns.full, contact.full_name],
                    [c.email, contact.email],
                    [c.columns.user, contact.user],
                    [text.namespace, namespace],
                  ]}
                />
              </Section>
              <Pairs title={text.labels} sources={[contact.metadata?.labels]} />
              <Pairs title={text.annotations} sources={[contact.metadata?.annotations]} />
            </>
          )
        }}
      </QueryView>
    </DetailPane>
  )
}

import { Button, Group } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { unwrap } from '../../api/client'
import { kinds, type Definition, type Kind } from '../../api/definitions'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { yamlOf } from '../../editor/yaml'
import { text } from '../../text'
import { configText as t } from '../../text/config'
import { CopyButton } from '../../widgets/CopyButton'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Output, Section } from '../../widgets/Facts'
import { QueryView } from '../../widgets/QueryView'
import css from './ConfigScreen.module.css'

interface Props {
  kind: Kind
  /** namespace/name. */
  target: string
  /** undefined if there is none. */
  definition: Definition | undefined
  onClose: () => void
  onStep: (by: number) => void
  onAct: (act: string) => void
}

/** A definition as YAML, with what names it and what is doubtful about it. */
export function DefinitionDetail({ kind, target, definition, onClose, onStep, onAct }: Props) {
  const [namespace = '', ...rest] = target.split('/')
  const name = rest.join('/')
  const rights = useRights(namespace || everywhere)
  if (!definition) {
    return (
      <DetailPane id={target} label={name} title={name} subtitle={namespace} onClose={onClose}>
        <EmptyState title={text.missing} help={target} />
      </DetailPane>
    )
  }
  const yaml = yamlOf(kind, definition)
  const edit = rights.why('update', kind.role)
  const remove = rights.why('delete', kind.role)
  const ns = namespace ? { ns: namespace } : {}
  return (
    <DetailPane
      id={`${kind.plural}/${target}`}
      label={`${t.detail}: ${name}`}
      title={name}
      subtitle={[kind.type, namespace].filter(Boolean).join(' · ')}
      tools={<CopyButton value={() => yaml} label={text.copyYAML} />}
      onClose={onClose}
      onStep={onStep}
    >
      <Group gap="sm">
        <Button size="xs" variant="default" disabled={edit !== undefined} title={edit} onClick={() => onAct('edit')}>
          {text.edit}
        </Button>
        <Button size="xs" variant="default" disabled={remove !== undefined} title={remove} onClick={() => onAct('delete')}>
          {text.delete}
        </Button>
        <CopyButton value={() => `lapwing create -f - <<'END'\n${yaml}END\n`} label={t.copyCommand} />
      </Group>
      <p className={css.links}>
        <Link to="/audit" search={{ ...ns, kind: kind.role, name }}>
          {t.changes}
        </Link>
        {kind.plural === 'checks' && (
          <Link to="/checks" search={{ ...ns, check: target }}>
            {text.nav.checks}
          </Link>
        )}
      </p>
      <Section title={t.yaml}>
        <Output>{yaml}</Output>
      </Section>
      <Findings kind={kind} namespace={namespace} name={name} />
      <NamedBy kind={kind} namespace={namespace} name={name} />
    </DetailPane>
  )
}

interface Target {
  kind: Kind
  namespace: string
  name: string
}

function NamedBy({ kind, namespace, name }: Target) {
  const { api } = useApp()
  const query = useQuery({
    queryKey: ['referrers', kind.plural, namespace, name],
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/referrers', {
          params: { path: { namespace: namespace || everywhere }, query: { to: `${kind.plural}/${name}` } },
        }),
      ),
    retry: false,
  })
  return (
    <Section title={t.referrers}>
      <QueryView query={query} rows={1}>
        {({ referrers, more }) => {
          const rest = Object.values(more ?? {}).reduce((sum, n) => sum + n, 0)
          if ((referrers ?? []).length === 0) return <p className={css.muted}>{t.noReferrers}</p>
          return (
            <ul className={css.named}>
              {(referrers ?? []).map((one) => (
                <li key={`${one.type}/${one.namespace ?? ''}/${one.name}/${one.names}`}>
                  {one.resource in kinds ? (
                    <Link
                      to="/config"
                      search={{
                        ...(one.namespace ? { ns: one.namespace } : {}),
                        kind: one.resource,
                        open: `${one.namespace ?? ''}/${one.name}`,
                      }}
                    >
                      {one.type} {one.name}
                    </Link>
                  ) : (
                    `${one.type} ${one.name}`
                  )}
                </li>
              ))}
              {rest > 0 && <li className={css.muted}>{t.more(rest)}</li>}
            </ul>
          )
        }}
      </QueryView>
    </Section>
  )
}

function Findings({ kind, namespace, name }: Target) {
  const { api } = useApp()
  const of = namespace || everywhere
  const query = useQuery({
    queryKey: ['lint', of],
    queryFn: async () =>
      (await unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/lint', { params: { path: { namespace: of } } }))) ?? [],
    retry: false,
  })
  const mine = (query.data ?? []).filter((one) => one.resource === kind.role && one.name === name && (one.namespace ?? '') === namespace)
  if (mine.length === 0) return null
  return (
    <Section title={t.findingsOf}>
      <ul className={css.named}>
        {mine.map((one) => (
          <li key={one.text}>
            <b>{t.severity[one.severity] ?? one.severity}</b>: {one.text}
          </li>
        ))}
      </ul>
    </Section>
  )
}

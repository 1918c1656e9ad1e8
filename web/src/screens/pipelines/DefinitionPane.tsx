import { Button, Group, Text } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds, wrap, type Definition } from '../../api/definitions'
import type { Delivery, Handler, Pipeline } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { DefinitionEditor } from '../../editor'
import { write } from '../../editor/document'
import { definitionsKey } from '../../live/definitions'
import { text as shared } from '../../text'
import { text } from '../../text/pipelines'
import { CopyButton } from '../../widgets/CopyButton'
import { DetailPane } from '../../widgets/DetailPane'
import { Output, Pairs, Section } from '../../widgets/Facts'
import { FormDialog } from '../../widgets/FormDialog'
import { QueryView } from '../../widgets/QueryView'
import { done } from '../../widgets/toast'
import { splitKey } from '../queues/search'
import { DryRun } from './DryRun'
import { flowOfHandler, flowsOf, type Flow, type Known } from './flow'
import { FlowView } from './FlowView'
import css from './Pipelines.module.css'
import type { PipelinesSearch, PipelinesTab } from './search'

interface Props {
  tab: PipelinesTab
  open: string
  search: PipelinesSearch
  change: (part: { [K in keyof PipelinesSearch]?: PipelinesSearch[K] }) => void
  knownIn: (namespace: string) => Known
}

/** A pipeline, handler, filter or mutator: its flow, a dry run of it, and what names it. */
export function DefinitionPane({ tab, open, search, change, knownIn }: Props) {
  const { definitions } = useApp()
  const { namespace, rest: name } = splitKey(open)
  const rights = useRights(namespace)
  const [editing, edit] = useDisclosure()
  const query = useQuery({
    queryKey: definitionsKey(tab, namespace, name),
    retry: false,
    queryFn: () => definitions.one(kinds[tab], namespace, name),
  })
  const yaml = (definition: Definition) => write(wrap(kinds[tab], definition))
  const definition = query.data
  return (
    <DetailPane
      id={open}
      label={`${text.one[tab]}: ${name}`}
      title={name}
      subtitle={`${text.one[tab]} · ${namespace}`}
      tools={definition && <CopyButton value={() => yaml(definition)} />}
      onClose={() => change({ open: undefined })}
    >
      <Group gap="sm">
        <Button size="xs" disabled={!definition || !rights.can('update', tab)} title={rights.why('update', tab)} onClick={edit.open}>
          {shared.edit}
        </Button>
        {definition && <Remove tab={tab} definition={definition} onDone={() => change({ open: undefined })} />}
        {tab === 'handlers' && (
          <Button
            size="xs"
            variant="default"
            renderRoot={(props) => <Link to="/queues" search={{ ns: search.ns, handler: open }} {...props} />}
          >
            {text.queue}
          </Button>
        )}
      </Group>
      <QueryView query={query}>
        {(one) => (
          <>
            {(tab === 'pipelines' || tab === 'handlers') && (
              <Flows
                key={open}
                tab={tab}
                definition={one}
                flows={
                  tab === 'pipelines' ? flowsOf(one as Pipeline, knownIn(namespace)) : flowOfHandler(one as Handler, knownIn(namespace))
                }
                namespace={namespace}
                search={search}
                change={change}
              />
            )}
            <References namespace={namespace} to={`${tab}/${name}`} />
            <Pairs title={shared.labels} sources={[one.metadata?.labels]} />
            <Pairs title={shared.annotations} sources={[one.metadata?.annotations]} />
            <Section title={text.definition}>
              <Output>{yaml(one)}</Output>
            </Section>
          </>
        )}
      </QueryView>
      {editing && definition && <DefinitionEditor kind={kinds[tab]} definition={definition} onClose={edit.close} />}
    </DetailPane>
  )
}

interface FlowsProps {
  tab: 'pipelines' | 'handlers'
  definition: Definition
  flows: Flow[]
  namespace: string
  search: PipelinesSearch
  change: Props['change']
}

/** The flow, and on it what a dry run does. */
function Flows({ tab, definition, flows, namespace, search, change }: FlowsProps) {
  const [deliveries, setDeliveries] = useState<readonly Delivery[]>([])
  const name = definition.metadata?.name
  const here = deliveries.filter(({ pipeline = '', handler }) =>
    tab === 'pipelines' ? pipeline === name : pipeline === '' && handler === name,
  )
  const runs = new Map(here.map((delivery) => [delivery.workflow ?? '', delivery]))
  return (
    <>
      <Section title={text.flow}>
        <FlowView namespace={namespace} flows={flows} runs={runs} search={search} />
      </Section>
      <DryRun
        tab={tab}
        definition={definition}
        namespace={namespace}
        search={search}
        change={change}
        deliveries={here}
        onRun={setDeliveries}
      />
    </>
  )
}

function References({ namespace, to }: { namespace: string; to: string }) {
  const { api } = useApp()
  const query = useQuery({
    queryKey: definitionsKey('referrers', namespace, to),
    retry: false,
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/referrers', { params: { path: { namespace }, query: { to } } })),
  })
  return (
    <Section title={text.references}>
      <QueryView query={query} rows={2}>
        {({ referrers, more }) => {
          const left = Object.values(more ?? {}).reduce((sum, n) => sum + n, 0)
          if ((referrers ?? []).length === 0)
            return (
              <Text size="sm" c="dimmed">
                {text.notNamed}
              </Text>
            )
          return (
            <ul className={css.refs}>
              {(referrers ?? []).map(({ type, resource, name, namespace: ns = namespace }) => (
                <li key={`${resource}/${ns}/${name}`}>
                  <span>{type}</span>{' '}
                  {resource === 'pipelines' || resource === 'handlers' ? (
                    <Link to="/pipelines" search={(all) => ({ ...all, tab: resource, open: `${ns}/${name}` })}>
                      {name}
                    </Link>
                  ) : (
                    <b>{name}</b>
                  )}
                </li>
              ))}
              {left > 0 && <li>{text.more(left)}</li>}
            </ul>
          )
        }}
      </QueryView>
    </Section>
  )
}

function Remove({ tab, definition, onDone }: { tab: PipelinesTab; definition: Definition; onDone: () => void }) {
  const { definitions } = useApp()
  const { namespace = '', name = '' } = definition.metadata ?? {}
  const rights = useRights(namespace)
  const [opened, { open, close }] = useDisclosure()
  const preview = useQuery({
    queryKey: ['dry-run', 'delete', tab, namespace, name],
    enabled: opened,
    retry: false,
    gcTime: 0,
    queryFn: () => definitions.delete(kinds[tab], namespace, name, true),
  })
  const act = useMutation({
    mutationFn: () => definitions.delete(kinds[tab], namespace, name),
    onSuccess: () => {
      close()
      done(text.removed(name), () => definitions.create(kinds[tab], definition))
      onDone()
    },
  })
  return (
    <>
      <Button size="xs" variant="default" disabled={!rights.can('delete', tab)} title={rights.why('delete', tab)} onClick={open}>
        {shared.delete}
      </Button>
      <FormDialog
        title={text.remove(name)}
        opened={opened}
        onClose={close}
        act={act}
        label={shared.delete}
        danger
        disabled={!preview.isSuccess}
      >
        <Text size="sm">{text.removeHelp}</Text>
        {preview.error && (
          <Text size="sm" role="alert">
            {preview.error.message}
          </Text>
        )}
        {(preview.data?.warnings ?? []).map((warning) => (
          <Text key={warning} size="sm">
            {warning}
          </Text>
        ))}
        <References namespace={namespace} to={`${tab}/${name}`} />
      </FormDialog>
    </>
  )
}

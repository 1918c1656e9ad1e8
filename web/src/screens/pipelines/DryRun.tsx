import { Group, Select, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { unwrap } from '../../api/client'
import type { Definition } from '../../api/definitions'
import type { Delivery, SensuEvent, Simulated } from '../../api/types'
import { useApp } from '../../app/context'
import { isUnfinished, parseQuery } from '../../search/query'
import { text as shared } from '../../text'
import { text } from '../../text/pipelines'
import { Section } from '../../widgets/Facts'
import { MomentInput } from '../../widgets/MomentInput'
import { QueryView } from '../../widgets/QueryView'
import { DeliveryCard } from '../trace/DeliveryCard'
import { partsOf } from '../trace/search'
import css from './Pipelines.module.css'
import type { PipelinesSearch } from './search'

interface Props {
  tab: 'pipelines' | 'handlers'
  definition: Definition
  namespace: string
  search: PipelinesSearch
  change: (part: { [K in keyof PipelinesSearch]?: PipelinesSearch[K] }) => void
  /** What it did here. */
  deliveries: readonly Delivery[]
  onRun: (deliveries: readonly Delivery[]) => void
}

/** Runs an event through a definition, without sending anything. */
export function DryRun({ tab, definition, namespace, search, change, deliveries, onRun }: Props) {
  const { api } = useApp()
  const { event, at } = search
  const picked = event !== undefined && partsOf(event).namespace === namespace ? partsOf(event) : undefined
  const query = useQuery({
    queryKey: ['simulate', tab, definition, event, at],
    enabled: picked !== undefined,
    retry: false,
    queryFn: () =>
      unwrap<Simulated>(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/pipelines/simulate', {
          params: { path: { namespace } },
          body: {
            entity: picked?.entity ?? '',
            check: picked?.check ?? '',
            [tab]: [definition],
            ...(at === undefined ? {} : { at }),
          } as never,
        }),
      ),
  })
  const answer = picked ? query.data : undefined
  useEffect(() => onRun(answer?.deliveries ?? []), [answer, onRun])
  return (
    <Section title={text.dryRun}>
      <Group gap="sm" align="end">
        <EventPicker namespace={namespace} value={picked && event} onChange={(to) => change({ event: to })} />
        <MomentInput label={text.at} value={at} onChange={(to) => change({ at: to })} />
      </Group>
      {!picked && (
        <Text size="sm" c="dimmed" mt="xs">
          {text.dryRunHelp}
        </Text>
      )}
      {picked && (
        <div className={css.answer} aria-live="polite">
          <QueryView query={query} rows={2}>
            {() => (
              <>
                {deliveries.map((delivery) => (
                  <DeliveryCard key={delivery.id} delivery={delivery} />
                ))}
                <Link to="/trace" search={{ ns: search.ns, event, simulate: true }}>
                  {text.edit}
                </Link>
              </>
            )}
          </QueryView>
        </div>
      )}
    </Section>
  )
}

/** Events that are offered at most. */
const offered = 20

function EventPicker({
  namespace,
  value,
  onChange,
}: {
  namespace: string
  value: string | undefined
  onChange: (event: string | undefined) => void
}) {
  const { api } = useApp()
  const [typed, setTyped] = useState('')
  const [asked] = useDebouncedValue(typed, 200)
  const selector = asked === '' || asked.includes(' · ') || isUnfinished(asked) ? '' : parseQuery(asked).selector
  const query = useQuery({
    queryKey: ['events', 'pick', namespace, selector],
    placeholderData: keepPreviousData,
    retry: false,
    queryFn: () =>
      unwrap<SensuEvent[] | null>(
        api.GET('/api/core/v2/namespaces/{namespace}/events', {
          params: { path: { namespace }, query: { limit: offered, ...(selector === '' ? {} : { fieldSelector: selector }) } },
        }) as never,
      ),
  })
  const options = new Map(
    (query.data ?? []).map(({ entity, check }) => {
      const key = `${namespace}/${entity?.metadata?.name ?? ''}/${check?.metadata?.name ?? ''}`
      return [key, { value: key, label: labelOf(key) }]
    }),
  )
  if (value !== undefined) options.set(value, { value, label: labelOf(value) })
  return (
    <Select
      size="xs"
      className={css.picker}
      label={text.event}
      placeholder={text.pick}
      searchable
      clearable
      clearButtonProps={{ 'aria-label': shared.clearSearch }}
      nothingFoundMessage={text.nothingFound}
      filter={({ options: all }) => all}
      value={value ?? null}
      data={[...options.values()]}
      onSearchChange={setTyped}
      onChange={(to) => onChange(to ?? undefined)}
    />
  )
}

function labelOf(key: string): string {
  const { entity, check } = partsOf(key)
  return `${check} · ${entity}`
}

import { Button, Group, NumberInput, Select, Stack, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import type { MetricCheck } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { boundsOf, parseRange } from '../../app/range'
import { clock } from '../../app/time'
import { DefinitionEditor } from '../../editor'
import { text } from '../../text'
import { metricsText } from '../../text/metrics'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'
import css from './MetricsScreen.module.css'

const t = metricsText.check

interface Props {
  targets: readonly string[]
  namespace: string
  /** The time for which is shown when it would have alerted, as in the address. */
  time: string
  onClose: () => void
}

type NumberTyped = number | string

/** Makes a metric check of a target, and shows when it would have alerted. */
export function MetricCheckDialog({ targets, namespace, time, onClose }: Props) {
  const { api, definitions } = useApp()
  const preferences = usePreferences()
  const [target, setTarget] = useState(targets[0] ?? '')
  const [name, setName] = useState('')
  const [when, setWhen] = useState<'above' | 'below'>('above')
  const [warning, setWarning] = useState<NumberTyped>('')
  const [critical, setCritical] = useState<NumberTyped>('')
  const [length, setLength] = useState<NumberTyped>(0)
  const [interval, setInterval] = useState<NumberTyped>(60)
  const [node, setNode] = useState<NumberTyped>('')
  const [asYAML, setAsYAML] = useState(false)
  const threshold = (typed: NumberTyped) => (typeof typed === 'number' ? { [when]: typed } : null)
  const check: MetricCheck = {
    metadata: { name, namespace },
    source: 'graphite',
    expr: target,
    interval: Number(interval) || 60,
    warning: threshold(warning),
    critical: threshold(critical),
    for: Number(length) || 0,
    ...(typeof node === 'number' ? { entity_node: node } : {}),
  }
  const drafted = JSON.stringify({ ...check, metadata: { name: 'draft', namespace } })
  const [asked] = useDebouncedValue(drafted, 400)
  const ready = check.warning !== null || check.critical !== null
  const preview = useQuery({
    queryKey: ['metric-check-preview', namespace, asked, time],
    enabled: ready && asked === drafted,
    retry: false,
    queryFn: () => {
      const { from, until } = boundsOf(parseRange(time) ?? { last: 86_400 }, Date.now() / 1000)
      return unwrap(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/metricchecks/preview', {
          params: { path: { namespace }, query: { since: String(Math.floor(from)), until: String(Math.floor(until)) } },
          body: JSON.parse(asked) as MetricCheck,
        }),
      )
    },
  })
  const save = useMutation({
    mutationFn: () => definitions.create(kinds.metricchecks, { ...check }),
    onSuccess: () => {
      done(t.made(name), () => definitions.delete(kinds.metricchecks, namespace, name))
      onClose()
    },
  })
  if (asYAML) return <DefinitionEditor kind={kinds.metricchecks} definition={{ ...check }} fresh onClose={onClose} />
  const fits = ready && preview.isSuccess && asked === drafted && name.trim() !== ''
  const alerts = (preview.data?.findings ?? []).filter(({ changes }) => (changes ?? []).some(({ status }) => status !== 0))
  return (
    <FormDialog opened title={t.title} onClose={onClose} act={save} label={t.make} disabled={!fits} size="lg">
      <Group grow align="start">
        <TextInput label={t.name} required value={name} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
        <TextInput label={t.namespace} value={namespace} readOnly />
      </Group>
      {targets.length > 1 ? (
        <Select label={t.target} value={target} data={[...targets]} allowDeselect={false} onChange={(next) => setTarget(next ?? '')} />
      ) : (
        <TextInput label={t.target} value={target} onChange={(event) => setTarget(event.currentTarget.value)} />
      )}
      <Group grow align="end">
        <Select
          label={t.when}
          value={when}
          data={t.whens}
          allowDeselect={false}
          onChange={(next) => setWhen(next === 'below' ? 'below' : 'above')}
        />
        <NumberInput label={t.warning} value={warning} onChange={setWarning} hideControls />
        <NumberInput label={t.critical} value={critical} onChange={setCritical} hideControls />
      </Group>
      <Group grow align="end">
        <NumberInput label={t.for} value={length} min={0} onChange={setLength} hideControls />
        <NumberInput label={t.interval} value={interval} min={1} onChange={setInterval} hideControls />
      </Group>
      <NumberInput label={t.node} description={t.nodeHelp} value={node} onChange={setNode} hideControls />
      <div role="status" aria-live="polite">
        {!ready ? (
          <Text size="sm" c="dimmed">
            {t.thresholds}
          </Text>
        ) : preview.error ? (
          <Text size="sm" c="red">
            {preview.error.message}
          </Text>
        ) : preview.data ? (
          <Stack gap={4}>
            <Text size="sm">{t.would(preview.data.fired)}</Text>
            <ul className={css.findings}>
              {alerts.slice(0, 20).map(({ entity, check: result, changes }) => (
                <li key={`${entity}/${result}`}>
                  <b>{t.of(entity, result)}</b>
                  {(changes ?? []).slice(-6).map(({ at, status }) => (
                    <span key={at}>
                      {clock(at, preferences.time, false)} {text.status(status)}
                    </span>
                  ))}
                </li>
              ))}
            </ul>
          </Stack>
        ) : (
          <Text size="sm" c="dimmed">
            {text.editor.asking}
          </Text>
        )}
      </div>
      <Button variant="subtle" size="compact-sm" onClick={() => setAsYAML(true)}>
        {t.yaml}
      </Button>
    </FormDialog>
  )
}

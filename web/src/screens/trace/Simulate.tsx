import { Alert, Button, Checkbox, Group, Select, Stack, Text } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds, wrap } from '../../api/definitions'
import type { Simulated } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { clock } from '../../app/time'
import { write } from '../../editor/document'
import { YamlEditor } from '../../editor/YamlEditor'
import { text } from '../../text/trace'
import { MomentInput } from '../../widgets/MomentInput'
import { DeliveryCard } from './DeliveryCard'
import { readDrafts } from './drafts'

interface Props {
  namespace: string
  entity: string
  check: string
  /** Definitions that may be changed, as plural/name. */
  used: readonly string[]
}

const changeable = { handlers: kinds.handlers, filters: kinds.filters, mutators: kinds.mutators, pipelines: kinds.pipelines }

/** Tries drafts of definitions on an event, now or at another time. Nothing is sent. */
export default function Simulate({ namespace, entity, check, used }: Props) {
  const { api, definitions } = useApp()
  const { time } = usePreferences()
  const [typed, setTyped] = useState('')
  const [at, setAt] = useState<number>()
  const [commands, setCommands] = useState(false)
  const add = useMutation({
    mutationFn: async (which: string) => {
      const [plural = '', name = ''] = which.split('/')
      const kind = changeable[plural as keyof typeof changeable]
      return write(wrap(kind, await definitions.one(kind, namespace, name)))
    },
    onSuccess: (yaml) => setTyped((before) => (before.trim() === '' ? yaml : `${before.trimEnd()}\n---\n${yaml}`)),
  })
  const act = useMutation({
    mutationFn: () =>
      unwrap<Simulated>(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/pipelines/simulate', {
          params: { path: { namespace } },
          body: { entity, check, ...readDrafts(typed, namespace), run_commands: commands, ...(at === undefined ? {} : { at }) } as never,
        }),
      ),
  })
  const failed = act.error ?? add.error
  return (
    <Stack gap="md">
      <Text size="sm">{text.simulateHelp}</Text>
      <Select
        size="xs"
        maw={360}
        label={text.add}
        value={null}
        data={[...used]}
        disabled={used.length === 0}
        onChange={(which) => which !== null && add.mutate(which)}
      />
      <YamlEditor label={text.drafts} value={typed} onChange={setTyped} />
      <Text size="xs" c="dimmed">
        {text.drafts}
      </Text>
      <Group gap="md" align="end">
        <MomentInput label={text.at} value={at} onChange={setAt} />
        <Checkbox size="xs" label={text.commands} checked={commands} onChange={(event) => setCommands(event.currentTarget.checked)} />
        <Button size="xs" loading={act.isPending} onClick={() => act.mutate()}>
          {text.go}
        </Button>
      </Group>
      {failed && (
        <Alert color="red" role="alert">
          {failed.message}
        </Alert>
      )}
      {act.data && (
        <section aria-label={text.simulate} aria-live="polite">
          <Text size="sm" fw={650} mb="sm">
            {text.would(act.data.at ? clock(act.data.at, time) : '')}
          </Text>
          {(act.data.deliveries ?? []).map((delivery) => (
            <DeliveryCard key={delivery.id} delivery={delivery} />
          ))}
        </section>
      )}
    </Stack>
  )
}

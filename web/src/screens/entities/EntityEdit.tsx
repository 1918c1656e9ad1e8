import { Button, CloseButton, Group, Stack, TagsInput, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { kinds } from '../../api/definitions'
import type { Entity } from '../../api/types'
import { useApp } from '../../app/context'
import { text } from '../../text'
import { entitiesText as t } from '../../text/entities'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'

interface Props {
  entity: Entity
  onClose: () => void
}

/** ms after the last key until the server is asked what it would say. */
const settled = 300

/** What a write of the entity would do, and the write. */
function useWrite(entity: Entity, before: Entity, after: Entity, said: string, onClose: () => void) {
  const { definitions } = useApp()
  const [read] = useState(entity) // as it was when the dialog was opened: somebody else may change it meanwhile
  const [asked] = useDebouncedValue(JSON.stringify(after), settled)
  const changed = JSON.stringify(before) !== JSON.stringify(after)
  const dry = useQuery({
    queryKey: ['dry-run', 'entities', asked],
    enabled: changed,
    retry: false,
    queryFn: () => definitions.put(kinds.entities, JSON.parse(asked) as Record<string, unknown>, true),
  })
  const act = useMutation({
    mutationFn: () => definitions.replace(kinds.entities, { ...read }, { ...after }),
    onSuccess: ({ undo }) => {
      done(said, undo)
      onClose()
    },
  })
  const ready = changed && dry.isSuccess && asked === JSON.stringify(after)
  const says = !changed
    ? text.editor.same
    : dry.error
      ? dry.error.message
      : ready
        ? [t.wouldTake, ...dry.data.warnings].join(' ')
        : text.editor.asking
  return { act, ready, says }
}

/** The subscriptions of an entity, besides its own. */
export function SubscriptionsDialog({ entity, known, onClose }: Props & { known: readonly string[] }) {
  const name = entity.metadata?.name ?? ''
  const own = `entity:${name}`
  const before = entity.subscriptions ?? []
  const [chosen, setChosen] = useState(before.filter((one) => one !== own))
  const after = { ...entity, subscriptions: [...chosen, ...before.filter((one) => one === own)] }
  const { act, ready, says } = useWrite(
    entity,
    { ...entity, subscriptions: [...before.filter((one) => one !== own), ...before.filter((one) => one === own)] },
    after,
    t.subscriptionsSaved(name),
    onClose,
  )
  return (
    <FormDialog opened title={`${t.subscriptionsEdit}: ${name}`} onClose={onClose} act={act} label={text.save} disabled={!ready}>
      <TagsInput
        label={t.subscriptions}
        description={t.subscriptionsHelp}
        value={chosen}
        onChange={setChosen}
        splitChars={[',', ' ']}
        acceptValueOnBlur
        comboboxProps={{ position: 'top' }}
        data={known.filter((one) => one !== '' && !one.startsWith('entity:'))}
        data-autofocus
      />
      <Text size="sm" c="dimmed" role="status">
        {says}
      </Text>
    </FormDialog>
  )
}

/** The labels of an entity. */
export function LabelsDialog({ entity, onClose }: Props) {
  const name = entity.metadata?.name ?? ''
  const [pairs, setPairs] = useState(() => Object.entries(entity.metadata?.labels ?? {}).sort())
  const set = (place: number, pair: [string, string]) => setPairs(pairs.map((one, i) => (i === place ? pair : one)))
  const withLabels = (labels: Record<string, string>): Entity => ({ ...entity, metadata: { ...entity.metadata, labels } })
  const { act, ready, says } = useWrite(
    entity,
    withLabels(Object.fromEntries(Object.entries(entity.metadata?.labels ?? {}).sort())),
    withLabels(Object.fromEntries(pairs.filter(([key]) => key.trim() !== '').map(([key, value]) => [key.trim(), value]))),
    t.bulk.did.label(1),
    onClose,
  )
  return (
    <FormDialog opened title={`${t.labelsEdit}: ${name}`} onClose={onClose} act={act} label={text.save} disabled={!ready}>
      <Stack gap="xs">
        {pairs.map(([key, value], i) => (
          <Group key={i} gap="xs" wrap="nowrap">
            <TextInput
              flex={1}
              aria-label={`${t.bulk.key} ${i + 1}`}
              value={key}
              onChange={(e) => set(i, [e.currentTarget.value, value])}
            />
            <TextInput
              flex={1}
              aria-label={`${t.bulk.value} ${i + 1}`}
              value={value}
              onChange={(e) => set(i, [key, e.currentTarget.value])}
            />
            <CloseButton aria-label={`${t.bulk.remove} ${key}`} onClick={() => setPairs(pairs.filter((_, at) => at !== i))} />
          </Group>
        ))}
        <Group>
          <Button size="compact-sm" variant="default" onClick={() => setPairs([...pairs, ['', '']])}>
            {t.addLabel}
          </Button>
        </Group>
      </Stack>
      <Text size="sm" c="dimmed" role="status">
        {says}
      </Text>
    </FormDialog>
  )
}

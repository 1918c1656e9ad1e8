import { Checkbox, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { kinds } from '../../api/definitions'
import type { CheckConfig } from '../../api/types'
import { useApp } from '../../app/context'
import { text } from '../../text'
import { checksText as t } from '../../text/checks'
import { DeleteDefinition } from '../../widgets/DeleteDefinition'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'
import { useTargets } from './use-checks'

/** Publishes a check, or takes that back. */
export function Publish({ check, namespace, onClose }: { check: CheckConfig; namespace: string; onClose: () => void }) {
  const { definitions } = useApp()
  const name = check.metadata?.name ?? ''
  const publish = !check.publish
  const targets = useTargets(namespace, name)
  const next = { ...check, publish }
  const dry = useQuery({
    queryKey: ['dry-run', 'publish', namespace, name, publish],
    queryFn: () => definitions.put(kinds.checks, next, true),
    staleTime: 0,
    retry: false,
  })
  const act = useMutation({
    mutationFn: () => definitions.replace(kinds.checks, { ...check }, next),
    onSuccess: ({ undo }) => {
      done(t.published(name, publish), undo)
      onClose()
    },
  })
  const label = publish ? t.publish : t.unpublish
  return (
    <FormDialog opened title={`${label}: ${name}`} onClose={onClose} act={act} label={label} disabled={!dry.isSuccess}>
      <Text size="sm">{t.publishHelp(publish, targets.data?.agents)}</Text>
      <Text size="sm" c="dimmed" role="status">
        {dry.error ? dry.error.message : dry.isSuccess ? text.editor.fine : text.editor.asking}
      </Text>
    </FormDialog>
  )
}

export function DeleteCheck({ check, onClose }: { check: CheckConfig; onClose: (deleted: boolean) => void }) {
  const [events, setEvents] = useState(true)
  return (
    <DeleteDefinition kind={kinds.checks} definition={{ ...check }} query={events ? { events: 'delete' } : {}} onClose={onClose}>
      <Checkbox label={t.deleteEvents} checked={events} onChange={(e) => setEvents(e.currentTarget.checked)} />
    </DeleteDefinition>
  )
}

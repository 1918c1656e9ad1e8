import { Text, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useRef, useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds } from '../../api/definitions'
import { useApp } from '../../app/context'
import { text } from '../../text'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'
import css from './BulkBar.module.css'
import { Length, secondsOf } from './Length'

const t = text.bulk

/** What a silence of a namespace is for: a subscription, or a condition for events. */
export type SilencePart = { namespace: string } & ({ subscription: string } | { field_selector: string })

interface Props {
  title: string
  /** What is silenced; the preview is asked for when it changes. */
  about: unknown
  parts: () => Promise<readonly SilencePart[]>
  /** The condition, if it also holds for events to come. */
  selector?: string | undefined
  /** The entities are silenced by their names: say so. */
  byName?: boolean
  onClose: (finished: boolean) => void
}

/** Makes a silence in each namespace, after a look at the events that they hit. */
export function SilenceDialog({ title, about, parts: partsOf, selector, byName = false, onClose }: Props) {
  const { api, definitions } = useApp()
  const [reason, setReason] = useState('')
  const [length, setLength] = useState('3600')
  const parts = useQuery({ queryKey: ['silence-parts', about], queryFn: partsOf })
  const bodyOf = ({ namespace, ...subject }: SilencePart) => ({
    metadata: { namespace, name: '' },
    ...subject,
    reason,
    expire: secondsOf(length) || -1,
  })
  const preview = useQuery({
    queryKey: ['silence-preview', parts.data],
    enabled: parts.data !== undefined,
    retry: false,
    queryFn: async () => {
      const all = await Promise.all(
        (parts.data ?? []).map((part) =>
          unwrap(
            api.POST('/api/lapwing/v1/namespaces/{namespace}/silenced/preview', {
              params: { path: { namespace: part.namespace } },
              body: bodyOf(part),
            }),
          ),
        ),
      )
      return { events: all.reduce((n, { events }) => n + events, 0), failing: all.reduce((n, { failing }) => n + failing, 0) }
    },
  })
  /** What was made already: a second try goes on after it. */
  const made = useRef<{ namespace: string; name: string }[]>([])
  const save = useMutation({
    mutationFn: async () => {
      for (const part of parts.data ?? []) {
        if (made.current.some(({ namespace }) => namespace === part.namespace)) continue // made before another failed
        // Silences of subscriptions have the names that Sensu gives them.
        const name = 'subscription' in part ? `${part.subscription}:*` : `page-${crypto.randomUUID().slice(0, 8)}`
        await definitions.create(kinds.silenced, { ...bodyOf(part), metadata: { namespace: part.namespace, name } })
        made.current.push({ namespace: part.namespace, name })
      }
      return made.current
    },
    onSuccess: (made) => {
      done(t.silenced(preview.data?.events ?? 0), () =>
        Promise.all(made.map(({ namespace, name }) => definitions.delete(kinds.silenced, namespace, name))),
      )
      onClose(true)
    },
  })
  const error = parts.error ?? preview.error
  return (
    <FormDialog
      opened
      title={title}
      onClose={() => onClose(false)}
      act={save}
      label={t.actions.silence}
      disabled={preview.data === undefined || reason.trim() === ''}
    >
      <Length label={text.act.endsAfter} value={length} onChange={setLength} none={text.act.never} />
      <TextInput label={text.act.reason} required value={reason} onChange={(e) => setReason(e.currentTarget.value)} data-autofocus />
      <Text size="sm" c="dimmed" role="status">
        {error ? error.message : preview.data ? text.act.hits(preview.data.events, preview.data.failing) : text.act.looking}
      </Text>
      {selector === undefined && byName && <Text size="sm">{t.silenceNames}</Text>}
      {selector !== undefined && (
        <Text size="sm">
          {t.silenceHelp} <code className={css.selector}>{selector}</code>
        </Text>
      )}
    </FormDialog>
  )
}

import { Alert, Button, Group, NumberInput, Switch, TagsInput, Text, Textarea, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { CheckConfig } from '../../api/types'
import { useApp } from '../../app/context'
import { DefinitionEditor } from '../../editor'
import { DiffView } from '../../editor/DiffView'
import { yamlOf } from '../../editor/yaml'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { checksText } from '../../text/checks'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'

const t = checksText.form

interface Props {
  /** What is changed; undefined for a new check. */
  check?: CheckConfig
  namespace: string
  onClose: () => void
}

/** Makes or changes a check by its most used fields; all others in YAML. */
export function CheckForm({ check: now, namespace, onClose }: Props) {
  const { api, definitions } = useApp()
  const [check] = useState(now) // as it was when the form was opened: somebody else may change it meanwhile
  const fresh = check === undefined
  const before = useMemo((): Definition => ({ ...check, metadata: check?.metadata ?? { namespace, name: '' } }), [check, namespace])
  const [fields, setFields] = useState<CheckConfig>(check ?? { command: '', interval: 60, publish: true, subscriptions: [], handlers: [] })
  const [name, setName] = useState(check?.metadata?.name ?? '')
  const [yaml, setYAML] = useState(false)
  const set = (part: Partial<CheckConfig>) => setFields((all) => ({ ...all, ...part }))
  const draft = useMemo((): Definition => {
    const { cron, ...rest } = fields
    return { ...rest, ...(cron ? { cron, interval: 0 } : {}), metadata: { ...before.metadata, name } }
  }, [fields, name, before])
  const [asked] = useDebouncedValue(draft, 300)
  const answer = useQuery({
    queryKey: ['dry-run', 'checks', fresh, asked],
    enabled: name !== '',
    retry: false,
    queryFn: () => (fresh ? definitions.create(kinds.checks, asked, true) : definitions.put(kinds.checks, asked, true)),
  })
  const names = useNames(namespace)
  const subscriptions = useQuery({
    queryKey: ['subscriptions', namespace],
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/subscriptions', { params: { path: { namespace } } })),
    retry: false,
  })
  const save = useMutation({
    mutationFn: async () => {
      if (!fresh) return (await definitions.replace(kinds.checks, before, draft)).undo
      await definitions.create(kinds.checks, draft)
      return () => definitions.delete(kinds.checks, namespace, name)
    },
    onSuccess: (undo) => {
      done(fresh ? t.made(name) : text.editor.saved(name), undo)
      onClose()
    },
  })
  if (yaml)
    return <DefinitionEditor kind={kinds.checks} definition={fresh ? draft : before} draft={draft} fresh={fresh} onClose={onClose} />
  return (
    <FormDialog
      opened
      size="lg"
      title={fresh ? t.newTitle : t.title(name)}
      onClose={onClose}
      act={save}
      label={fresh ? t.create : t.save}
      disabled={!answer.isSuccess || asked !== draft}
    >
      {fresh && (
        <Group grow align="start">
          <TextInput label={t.name} value={name} onChange={(e) => setName(e.currentTarget.value)} required data-autofocus />
          <TextInput label={t.namespace} value={namespace} readOnly />
        </Group>
      )}
      <Textarea
        label={t.command}
        description={t.commandHelp}
        autosize
        minRows={2}
        maxRows={10}
        required
        styles={{ input: { fontFamily: 'var(--mono)' } }}
        value={fields.command ?? ''}
        onChange={(e) => set({ command: e.currentTarget.value })}
      />
      <Group grow align="end">
        <NumberInput
          label={t.interval}
          min={1}
          value={fields.interval ?? ''}
          disabled={Boolean(fields.cron)}
          onChange={(interval) => set({ interval: Number(interval) })}
        />
        <TextInput
          label={t.cron}
          placeholder="*/5 * * * *"
          value={fields.cron ?? ''}
          onChange={(e) => set({ cron: e.currentTarget.value })}
        />
        <NumberInput label={t.timeout} min={0} value={fields.timeout ?? 0} onChange={(timeout) => set({ timeout: Number(timeout) })} />
      </Group>
      <Text size="xs" c="dimmed">
        {t.cronHelp}
      </Text>
      <TagsInput
        label={t.subscriptions}
        description={t.subscriptionsHelp}
        data={(subscriptions.data ?? []).map((one) => one.name)}
        value={[...(fields.subscriptions ?? [])]}
        onChange={(value) => set({ subscriptions: value })}
      />
      <TagsInput
        label={t.handlers}
        description={t.handlersHelp}
        data={names}
        value={[...(fields.handlers ?? [])]}
        onChange={(value) => set({ handlers: value })}
      />
      <Switch label={t.publish} checked={fields.publish ?? false} onChange={(e) => set({ publish: e.currentTarget.checked })} />
      <div role="status" aria-live="polite">
        {answer.error ? (
          <Alert color="red">{answer.error.message}</Alert>
        ) : (
          <Text size="sm" c="dimmed">
            {name === '' ? '' : answer.isFetching || asked !== draft ? text.editor.asking : text.editor.fine}
          </Text>
        )}
        {(answer.data?.warnings ?? []).map((warning) => (
          <Alert key={warning} color="yellow">
            {warning}
          </Alert>
        ))}
      </div>
      {!fresh && <DiffView before={yamlOf(kinds.checks, before)} after={yamlOf(kinds.checks, asked)} />}
      <Button variant="subtle" size="compact-sm" onClick={() => setYAML(true)}>
        {t.yaml}
      </Button>
    </FormDialog>
  )
}

/** The handlers of a namespace, if the user may list them. */
function useNames(namespace: string): string[] {
  const { definitions } = useApp()
  const query = useQuery({
    queryKey: definitionsKey('handlers', namespace),
    queryFn: () => definitions.list(kinds.handlers, namespace),
    retry: false,
  })
  return (query.data ?? []).map(({ metadata }) => metadata?.name ?? '')
}

import { Alert, Button, Group, Modal, Stack, Table, Tabs, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { ApiError, unwrap } from '../api/client'
import { unwrapDefinition, wrap, type Definition, type Kind, type Wrapped } from '../api/definitions'
import { useApp } from '../app/context'
import { text } from '../text'
import { useFocusBack } from '../widgets/use-focus-back'
import { done } from '../widgets/toast'
import { described, parse, placed, write, type Mistake } from './document'
import { DiffView } from './DiffView'
import { YamlEditor } from './YamlEditor'

interface Props {
  kind: Kind
  /** What is edited; for a new one, what it begins with. */
  definition: Definition
  /** What the text begins with, if it differs from that. */
  draft?: Definition | undefined
  /** It is not there yet. */
  fresh?: boolean
  onClose: () => void
}

/** ms after the last key until the server is asked what it would say. */
const settled = 400

/** Edits a definition as YAML. The server is asked all the time what it would say, and nothing is saved before it agrees. */
export default function DefinitionEditor({ kind, definition: now, draft, fresh = false, onClose }: Props) {
  const [definition] = useState(now) // as it was when the editor was opened: somebody else may change it meanwhile
  useFocusBack()
  const { definitions } = useApp()
  const before = useMemo(() => write(wrap(kind, definition)), [kind, definition])
  const [typed, setTyped] = useState(() => (draft === undefined ? before : write(wrap(kind, draft))))
  const [asked] = useDebouncedValue(typed, settled)
  const parsed = useMemo(() => parse(asked), [asked])
  const read = 'value' in parsed ? unwrapDefinition(parsed.value as unknown as Wrapped) : undefined
  const answer = useQuery({
    queryKey: ['dry-run', kind.plural, fresh, asked],
    enabled: read !== undefined,
    retry: false,
    queryFn: () => (fresh ? definitions.create(kind, read ?? {}, true) : definitions.put(kind, read ?? {}, true)),
  })
  const refused = answer.error instanceof ApiError ? answer.error : undefined
  const mistakes: Mistake[] = 'mistakes' in parsed ? parsed.mistakes : refused?.mistakes ? placed(parsed.document, refused.mistakes) : []
  const diagnostics = useMemo(() => mistakes.map((mistake) => ({ ...mistake, severity: 'error' as const })), [parsed, refused])
  const renamed = !fresh && read?.metadata?.name !== definition.metadata?.name
  const save = useMutation({
    mutationFn: async () => {
      if (!fresh) return (await definitions.replace(kind, definition, read ?? {})).undo
      await definitions.create(kind, read ?? {})
      return undefined
    },
    onSuccess: (undo) => {
      done(text.editor.saved(read?.metadata?.name ?? ''), undo)
      onClose()
    },
  })
  const ready = answer.isSuccess && asked === typed && (fresh || typed !== before)
  return (
    <Modal
      opened
      onClose={onClose}
      closeOnEscape={false} // Escape frees Tab in the editor
      closeOnClickOutside={false}
      size="min(1100px, 96vw)"
      title={fresh ? text.editor.make(kind.type) : text.editor.change(definition.metadata?.name ?? '')}
      closeButtonProps={{ 'aria-label': text.close }}
    >
      <Stack gap="md">
        <YamlEditor label={kind.type} value={typed} onChange={setTyped} diagnostics={diagnostics} />
        <Text size="xs" c="dimmed">
          {text.editor.keys}
        </Text>
        <div role="status" aria-live="polite">
          {mistakes.length > 0 ? (
            <Alert color="red" title={text.editor.mistakes(mistakes.length)}>
              {mistakes.map(({ message }, i) => (
                <Text key={i} size="sm">
                  {message}
                </Text>
              ))}
            </Alert>
          ) : answer.error ? (
            <Alert color="red">{answer.error.message}</Alert>
          ) : (answer.data?.warnings ?? []).length > 0 ? (
            <Alert color="yellow" title={text.editor.warnings}>
              {answer.data?.warnings.map((warning, i) => (
                <Text key={i} size="sm">
                  {warning}
                </Text>
              ))}
            </Alert>
          ) : (
            <Text size="sm" c="dimmed">
              {answer.isFetching || asked !== typed ? text.editor.asking : text.editor.fine}
            </Text>
          )}
          {renamed && <Alert color="yellow">{text.editor.renamed(definition.metadata?.name ?? '')}</Alert>}
        </div>
        <Tabs defaultValue={fresh ? 'fields' : 'diff'} keepMounted={false}>
          <Tabs.List>
            {!fresh && <Tabs.Tab value="diff">{text.editor.diff}</Tabs.Tab>}
            <Tabs.Tab value="fields">{text.editor.fields}</Tabs.Tab>
          </Tabs.List>
          {!fresh && (
            <Tabs.Panel value="diff" pt="sm">
              <DiffView before={before} after={asked} />
            </Tabs.Panel>
          )}
          <Tabs.Panel value="fields" pt="sm">
            <Fields type={kind.type} />
          </Tabs.Panel>
        </Tabs>
        {save.error && (
          <Alert color="red" role="alert">
            {save.error.message}
          </Alert>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            {text.cancel}
          </Button>
          <Button disabled={!ready} loading={save.isPending} onClick={() => save.mutate()}>
            {text.save}
          </Button>
        </Group>
      </Stack>
    </Modal>
  )
}

interface Schema {
  description?: string
  type?: string | string[]
  $ref?: string
  items?: Schema
  properties?: Record<string, Schema>
}

/** The fields of a kind, as the API's document describes them. */
function Fields({ type }: { type: string }) {
  const { api } = useApp()
  const document = useQuery({
    queryKey: ['openapi'],
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/openapi.json')) as Promise<{ components?: { schemas?: Record<string, Schema> } }>,
    staleTime: Infinity,
  })
  const fields = Object.entries(document.data?.components?.schemas?.[type]?.properties ?? {}).filter(([name]) => name !== 'metadata')
  return (
    <Table.ScrollContainer minWidth={400} mah={240}>
      <Table verticalSpacing={4} fz="sm">
        <Table.Tbody>
          {fields.map(([name, schema]) => (
            <Table.Tr key={name}>
              <Table.Td>
                <code>{name}</code>
              </Table.Td>
              <Table.Td c="dimmed">{typeOf(schema)}</Table.Td>
              <Table.Td>{described(name, schema.description)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  )
}

function typeOf({ type, $ref, items }: Schema): string {
  if ($ref) return $ref.replace(/.*\//, '')
  if (items) return `${typeOf(items)}[]`
  return [type]
    .flat()
    .filter((one) => one !== 'null')
    .join(' ')
}

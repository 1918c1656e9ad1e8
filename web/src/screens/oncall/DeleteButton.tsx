import { Alert, Button, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type { Definition, Kind } from '../../api/definitions'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { text } from '../../text'
import { oncall as t } from '../../text/oncall'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'

interface Props {
  kind: Kind
  definition: Definition
  onDeleted?: () => void
}

/** Deletes a definition, after it has shown what the server says to that. */
export function DeleteButton({ kind, definition, onDeleted }: Props) {
  const [opened, setOpened] = useState(false)
  const rights = useRights(definition.metadata?.namespace ?? '')
  const cannot = rights.why('delete', kind.role)
  return (
    <>
      <Button size="xs" variant="default" disabled={cannot !== undefined} title={cannot} onClick={() => setOpened(true)}>
        {t.delete}
      </Button>
      {opened && (
        <DeleteDialog kind={kind} definition={definition} onClose={() => setOpened(false)} {...(onDeleted ? { onDeleted } : {})} />
      )}
    </>
  )
}

function DeleteDialog({ kind, definition, onDeleted, onClose }: Props & { onClose: () => void }) {
  const { definitions } = useApp()
  const { namespace = '', name = '' } = definition.metadata ?? {}
  const dry = useQuery({
    queryKey: ['dry-delete', kind.plural, namespace, name],
    staleTime: 0,
    retry: false,
    queryFn: () => definitions.delete(kind, namespace, name, true),
  })
  const act = useMutation({
    mutationFn: () => definitions.delete(kind, namespace, name),
    onSuccess: () => {
      done(t.deleted(name), () => definitions.create(kind, definition))
      onClose()
      onDeleted?.()
    },
  })
  const warnings = dry.data?.warnings ?? []
  return (
    <FormDialog opened danger title={t.deleteTitle(name)} label={t.delete} onClose={onClose} act={act} disabled={!dry.isSuccess}>
      <div role="status">
        {dry.error ? (
          <Alert color="red">{dry.error.message}</Alert>
        ) : warnings.length > 0 ? (
          <Alert color="yellow" title={t.deleteHelp}>
            {warnings.map((warning) => (
              <Text key={warning} size="sm">
                {warning}
              </Text>
            ))}
          </Alert>
        ) : (
          <Text size="sm">{dry.isPending ? text.editor.asking : t.deleteFine}</Text>
        )}
      </div>
    </FormDialog>
  )
}

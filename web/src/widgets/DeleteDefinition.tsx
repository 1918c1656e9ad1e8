import { Alert, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { unwrap } from '../api/client'
import type { Definition, Kind } from '../api/definitions'
import { useApp } from '../app/context'
import { everywhere } from '../app/search'
import { text } from '../text'
import { deletionText as t } from '../text/deletion'
import { Output } from './Facts'
import { FormDialog } from './FormDialog'
import { done } from './toast'

interface Props {
  kind: Kind
  definition: Definition
  /** Parameters of the request. */
  query?: Record<string, string>
  onClose: (deleted: boolean) => void
  /** Further choices. */
  children?: ReactNode
}

/** Deletes a definition, after a dry run and a look at what names it. */
export function DeleteDefinition({ kind, definition, query = {}, onClose, children }: Props) {
  const { api, definitions } = useApp()
  const { name = '', namespace = '' } = definition.metadata ?? {}
  const dry = useQuery({
    queryKey: ['dry-delete', kind.plural, namespace, name, query],
    queryFn: () => definitions.delete(kind, namespace, name, true, query),
    staleTime: 0,
    retry: false,
  })
  const referrers = useQuery({
    queryKey: ['referrers', kind.plural, namespace, name],
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/referrers', {
          params: { path: { namespace: kind.namespaced ? namespace : everywhere }, query: { to: `${kind.plural}/${name}` } },
        }),
      ),
    staleTime: 0,
    retry: false,
  })
  const act = useMutation({
    mutationFn: () => definitions.delete(kind, namespace, name, false, query),
    onSuccess: () => {
      done(t.done(name), () => definitions.put(kind, definition))
      onClose(true)
    },
  })
  const found = referrers.data?.referrers ?? []
  const more = Object.values(referrers.data?.more ?? {}).reduce((sum, n) => sum + n, 0)
  return (
    <FormDialog opened title={t.title(name)} onClose={() => onClose(false)} act={act} label={text.delete} danger disabled={!dry.isSuccess}>
      {children}
      <div role="status" aria-live="polite">
        {dry.error ? <Alert color="red">{dry.error.message}</Alert> : <Text size="sm">{dry.isSuccess ? t.fine : t.asking}</Text>}
        {(dry.data?.warnings ?? []).map((warning) => (
          <Text key={warning} size="sm">
            {warning}
          </Text>
        ))}
        {referrers.isSuccess && (
          <Text size="sm" mt="xs">
            {found.length === 0 ? t.none : t.referrers(found.length + more)}
          </Text>
        )}
        {referrers.error && (
          <Text size="sm" mt="xs">
            {referrers.error.message}
          </Text>
        )}
      </div>
      {found.length > 0 && (
        <Output>
          {[
            ...found.map((one) => `${one.type} ${one.namespace ? `${one.namespace}/` : ''}${one.name}`),
            ...(more > 0 ? [t.more(more)] : []),
          ].join('\n')}
        </Output>
      )}
    </FormDialog>
  )
}

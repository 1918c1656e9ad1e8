import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { useApp } from '../../app/context'
import { suggestFields, suggestValues, valueAt, type Suggestion } from '../../search/fields'

/** Values of a field that are offered at most; the server has the worst ones first. */
const most = 100

/** What may come at the end of a search for events: fields, and the values that there are. */
export function useSuggestions(namespace: string): { suggestions: (typed: string) => readonly Suggestion[]; onType: (typed: string) => void } {
  const { api } = useApp()
  const [typed, setTyped] = useState('')
  const [settled] = useDebouncedValue(typed, 150)
  const groupBy = valueAt(settled)?.field.groupBy
  const values = useQuery({
    queryKey: ['values', namespace, groupBy],
    enabled: groupBy !== undefined,
    staleTime: 30_000,
    queryFn: async () => {
      const found = await unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
          params: { path: { namespace }, query: { groupBy: groupBy ?? '', limit: most } },
        }),
      )
      return (found.group ?? []).map(({ value }) => value)
    },
  })
  const suggestions = (text: string) => {
    const field = valueAt(text)?.field
    if (field) return suggestValues(text, field.values ?? (field.groupBy === groupBy ? (values.data ?? []) : []))
    return suggestFields(text)
  }
  return { suggestions, onType: setTyped }
}

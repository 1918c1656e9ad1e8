import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { useApp } from '../../app/context'
import { entityLanguage, eventLanguage, suggestFields, suggestValues, valueAt, type Suggestion } from '../../search/fields'

/** Values of a field that are offered at most; the server has the worst ones first. */
const most = 100

const languages = { events: eventLanguage, entities: entityLanguage }

/** What may come at the end of a search for events, or for entities: fields, and the values that there are. */
export function useSuggestions(
  namespace: string,
  of: 'events' | 'entities' = 'events',
): { suggestions: (typed: string) => readonly Suggestion[]; onType: (typed: string) => void } {
  const { api } = useApp()
  const language = languages[of]
  const [typed, setTyped] = useState('')
  const [settled] = useDebouncedValue(typed, 150)
  const groupBy = valueAt(settled, language)?.field.groupBy
  const values = useQuery({
    queryKey: ['values', of, namespace, groupBy],
    enabled: groupBy !== undefined,
    staleTime: 30_000,
    queryFn: async () => {
      const params = { path: { namespace }, query: { groupBy: groupBy ?? '', limit: most } }
      const found = await (of === 'events'
        ? unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', { params }))
        : unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/view', { params })))
      return (found.group ?? []).map(({ value }) => value)
    },
  })
  const suggestions = (text: string) => {
    const field = valueAt(text, language)?.field
    if (field) return suggestValues(text, field.values ?? (field.groupBy === groupBy ? (values.data ?? []) : []), language)
    return suggestFields(text, language)
  }
  return { suggestions, onType: setTyped }
}

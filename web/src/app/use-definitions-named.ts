import { useQueries } from '@tanstack/react-query'
import { kinds, type Definition, type Kind } from '../api/definitions'
import { definitionsKey } from '../live/definitions'
import { parseQuery } from '../search/query'
import { useApp } from './context'
import { useRights } from './rights'

/** What operators look for by its name. Entities and events have lists of their own. */
const searched: readonly { kind: Kind; prefix: string }[] = [
  { kind: kinds.checks, prefix: 'check' },
  { kind: kinds.handlers, prefix: 'handler' },
  { kind: kinds.pipelines, prefix: 'pipeline' },
  { kind: kinds.filters, prefix: 'filter' },
  { kind: kinds.mutators, prefix: 'mutator' },
  { kind: kinds.hooks, prefix: 'hook' },
  { kind: kinds.assets, prefix: 'asset' },
]

/** A definition that was found. */
export interface Named {
  kind: Kind
  namespace: string
  name: string
}

/** Definitions that have some words in their names, as many as most of each kind that the user may list. */
export function useDefinitionsNamed(
  words: string,
  namespace: string,
  enabled: boolean,
  most: number,
): { found: Named[]; answered: boolean } {
  const { definitions } = useApp()
  const rights = useRights(namespace)
  return useQueries({
    queries: searched.map(({ kind, prefix }) => ({
      queryKey: definitionsKey(kind.role, namespace, 'named', words),
      enabled: enabled && rights.known && rights.can('list', kind.role),
      retry: false,
      queryFn: () =>
        definitions.list(kind, namespace, {
          fieldSelector: parseQuery(words, { fields: [], words: [`${prefix}.name`] }).selector,
          limit: String(most),
        }),
    })),
    combine: (answers) => ({
      found: answers.flatMap(({ data = [] }, i) =>
        data.slice(0, most).map((definition) => named((searched[i] as (typeof searched)[number]).kind, definition)),
      ),
      answered: rights.known && answers.every(({ isLoading }) => !isLoading),
    }),
  })
}

const named = (kind: Kind, { metadata }: Definition): Named => ({
  kind,
  namespace: metadata?.namespace ?? '',
  name: metadata?.name ?? '',
})

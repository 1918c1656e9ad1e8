import { useQueries } from '@tanstack/react-query'
import { kinds, type Definition, type Kind } from '../api/definitions'
import { definitionsKey } from '../live/definitions'
import { parseQuery } from '../search/query'
import { useApp } from './context'

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

/** Definitions that have some words in their names, as many as most of each kind; kinds that the user may not list have none. */
export function useDefinitionsNamed(words: string, namespace: string, enabled: boolean, most: number): Named[] {
  const { definitions } = useApp()
  return useQueries({
    queries: searched.map(({ kind, prefix }) => ({
      queryKey: definitionsKey(kind.role, namespace, 'named', words),
      enabled,
      retry: false,
      queryFn: () =>
        definitions.list(kind, namespace, {
          fieldSelector: parseQuery(words, { fields: [], words: [`${prefix}.name`] }).selector,
          limit: String(most),
        }),
    })),
    combine: (answers) =>
      answers.flatMap(({ data = [] }, i) => data.map((definition) => named((searched[i] as (typeof searched)[number]).kind, definition))),
  })
}

const named = (kind: Kind, { metadata }: Definition): Named => ({
  kind,
  namespace: metadata?.namespace ?? '',
  name: metadata?.name ?? '',
})

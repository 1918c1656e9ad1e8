import { useQuery } from '@tanstack/react-query'
import { kinds, pathOf } from '../../api/definitions'
import type { Entity } from '../../api/types'
import { useApp } from '../../app/context'

/** Entities whose labels are looked at: keys of labels are the same on most hosts. */
const looked = 200

/** Keys of labels that entities of a namespace have, once they are wanted. */
export function useLabels(namespace: string, wanted = true): readonly string[] {
  const { session } = useApp()
  const keys = useQuery({
    queryKey: ['label-keys', namespace],
    enabled: wanted,
    staleTime: 300_000,
    queryFn: async () => {
      const response = await session.fetch(`${pathOf(kinds.entities, namespace)}?limit=${looked}`)
      if (!response.ok) return [] // the user may not list entities; labels can still be typed
      const entities = (await response.json()) as Entity[] | null
      return [...new Set((entities ?? []).flatMap(({ metadata }) => Object.keys(metadata?.labels ?? {})))]
    },
  })
  return keys.data ?? []
}

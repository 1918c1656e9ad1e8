import { useThrottledValue } from '@mantine/hooks'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { unwrap } from '../../api/client'
import type { Explained, Explanation } from '../../api/types'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'

/** ms between two questions about the same events: deliveries end without a change of the event. */
const every = 10_000
/** ms between two questions when the list changes all the time. */
const often = 1000

/** Whether somebody was told of each of some events, by their keys; those that the user may not read are left out. */
export function useTold(keys: readonly string[]): ReadonlyMap<string, Explained> {
  const { api } = useApp()
  const asked = useThrottledValue(keys.join(' '), often)
  const told = useQuery({
    queryKey: ['told', asked],
    enabled: asked !== '',
    refetchInterval: every,
    placeholderData: keepPreviousData,
    queryFn: async () => {
      const answers = await unwrap(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/events/explain', {
          params: { path: { namespace: everywhere } },
          body: {
            keys: asked.split(' ').map((key) => {
              const [namespace = '', entity = '', check = ''] = key.split('/')
              return { namespace, entity, check }
            }),
          },
        }),
      )
      return new Map((answers ?? []).map((one) => [`${one.namespace}/${one.entity}/${one.check}`, one]))
    },
  })
  return told.data ?? none
}

const none: ReadonlyMap<string, Explained> = new Map()

/** Whether somebody was told of an event, by each route, and why not. */
export function useExplanation(namespace: string, entity: string, check: string, revision: number | undefined) {
  const { api } = useApp()
  return useQuery<Explanation>({
    queryKey: ['explain', namespace, entity, check, revision],
    refetchInterval: every,
    placeholderData: (old, of) => (of?.queryKey.slice(1, 4).join('/') === `${namespace}/${entity}/${check}` ? old : undefined),
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/explain', {
          params: { path: { namespace, entity, check } },
        }),
      ),
  })
}

import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { refusal, unwrap } from '../../api/client'
import type { DeadLetter, TurnGroup, Waiting } from '../../api/types'
import { useApp } from '../../app/context'

/** How often what has no push is asked anew, in ms. */
export const every = 3000

/** Dead letters of a page. */
const page = 200

/** What waits for all handlers of a namespace. */
export function useWaiting(namespace: string) {
  const { api } = useApp()
  return useQuery({
    queryKey: ['waiting', namespace],
    queryFn: () =>
      unwrap<Waiting[] | null>(api.GET('/api/lapwing/v1/namespaces/{namespace}/waiting', { params: { path: { namespace } } })).then(
        (all) => all ?? [],
      ),
    placeholderData: keepPreviousData,
    refetchInterval: every,
  })
}

/** What waits for one handler, with its first deliveries; undefined in data if nothing does. */
export function useWaitingOf(namespace: string, handler: string) {
  const { api } = useApp()
  return useQuery({
    queryKey: ['waiting', namespace, handler],
    queryFn: async () => {
      const query = { handler, limit: 100 }
      const all = await unwrap<Waiting[] | null>(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/waiting', { params: { path: { namespace }, query } }),
      )
      return { waiting: all?.[0] }
    },
    refetchInterval: every,
  })
}

/** Pages of dead letters, of one handler or all. */
export function useLetters(namespace: string, handler?: string) {
  const { api } = useApp()
  return useInfiniteQuery({
    queryKey: ['deadletters', namespace, handler ?? ''],
    initialPageParam: '',
    queryFn: async ({ pageParam }) => {
      const query = { limit: page, ...(handler ? { handler } : {}), ...(pageParam ? { continue: pageParam } : {}) }
      const { data, error, response } = await api.GET('/api/lapwing/v1/namespaces/{namespace}/deadletters', {
        params: { path: { namespace }, query },
      })
      if (!response.ok) throw refusal(response.status, error)
      return { letters: (data ?? []) as DeadLetter[], next: response.headers.get('Sensu-Continue') ?? '' }
    },
    getNextPageParam: ({ next }) => next || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: every,
  })
}

export function useGroups(namespace: string) {
  const { api } = useApp()
  return useQuery({
    queryKey: ['queue', namespace],
    queryFn: () =>
      unwrap<TurnGroup[] | null>(api.GET('/api/lapwing/v1/namespaces/{namespace}/queue', { params: { path: { namespace } } })).then(
        (all) => all ?? [],
      ),
    placeholderData: keepPreviousData,
    refetchInterval: every,
  })
}

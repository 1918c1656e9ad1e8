import { useQueries, useQuery, type UseQueryResult } from '@tanstack/react-query'
import { useMemo } from 'react'
import { unwrap, type Api } from '../../api/client'
import { kinds } from '../../api/definitions'
import type { CheckConfig, CheckTargets, EventGroup } from '../../api/types'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { definitionsKey } from '../../live/definitions'
import type { CheckRow } from './row'

/** How often what changes with the results is asked for, in ms. */
const refresh = 10_000

/** Groups that one request brings. */
const page = 500

/** All checks of a namespace, or of all, with their lateness and the counts of their events. */
export function useChecks(namespace: string): { query: UseQueryResult<CheckConfig[]>; rows: CheckRow[] } {
  const { api, definitions } = useApp()
  const query = useQuery({
    queryKey: definitionsKey('checks', namespace),
    queryFn: () => definitions.list<CheckConfig & { [field: string]: unknown }>(kinds.checks, namespace) as Promise<CheckConfig[]>,
  })
  const late = useQuery({
    queryKey: definitionsKey('checks', 'lateness', namespace),
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/checks/lateness', { params: { path: { namespace } } })),
    refetchInterval: refresh,
  })
  const namespaces = useMemo(
    () => (namespace === everywhere ? [...new Set((query.data ?? []).map(({ metadata }) => metadata?.namespace ?? ''))] : [namespace]),
    [namespace, query.data],
  )
  const counts = useQueries({
    queries: namespaces.map((of) => ({
      queryKey: ['check-counts', of],
      queryFn: () => countsOf(api, of),
      refetchInterval: refresh,
    })),
    combine: (results) => results.map(({ data }) => data),
  })
  const rows = useMemo(() => {
    const lateOf = new Map((late.data ?? []).map((one) => [`${one.namespace}/${one.check}`, one]))
    const groups = new Map(namespaces.map((of, i) => [of, new Map((counts[i] ?? []).map((one) => [one.value, one.counts]))]))
    return (query.data ?? []).map((check): CheckRow => {
      const { name = '', namespace: of = '' } = check.metadata ?? {}
      const key = `${of}/${name}`
      return { key, namespace: of, name, check, late: lateOf.get(key), counts: groups.get(of)?.get(name) }
    })
  }, [query.data, late.data, namespaces, counts])
  return { query, rows }
}

/** The counts of all checks of a namespace. */
async function countsOf(api: Api, namespace: string): Promise<EventGroup[]> {
  const all: EventGroup[] = []
  for (;;) {
    const answer = await unwrap(
      api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
        params: { path: { namespace }, query: { groupBy: 'check', offset: all.length, limit: page } },
      }),
    )
    const group = answer.group ?? []
    all.push(...group)
    if (group.length < page || all.length >= (answer.groups ?? 0)) return all
  }
}

/** The agents that would run a check. */
export function useTargets(namespace: string, name: string): UseQueryResult<CheckTargets> {
  const { api } = useApp()
  return useQuery({
    queryKey: definitionsKey('checks', 'targets', namespace, name),
    queryFn: () =>
      unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/checks/{name}/targets', { params: { path: { namespace, name } } })),
    staleTime: 30_000,
    refetchInterval: 30_000,
  })
}

import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useMemo, useSyncExternalStore } from 'react'
import { unwrap } from '../../api/client'
import { useApp } from '../../app/context'
import { EntityList, type EntityQuery } from '../../live/entity-list'

/** A live list of entities, drawn anew with each change. */
export function useEntityList(query: EntityQuery): EntityList {
  const { live } = useApp()
  const key = JSON.stringify(query)
  const list = useMemo(() => new EntityList({ query: JSON.parse(key) as EntityQuery, connection: live }), [live, key])
  useSyncExternalStore(list.subscribe, () => list.version)
  return list
}

/** What selects entities, as the API takes it. */
export type Selected = Pick<EntityQuery, 'namespace' | 'selector' | 'agent' | 'worst' | 'backend'>

export function queryOf({ selector, agent, worst, backend }: Selected) {
  return {
    ...(selector === '' ? {} : { fieldSelector: selector }),
    ...(agent === '' ? {} : { agent }),
    ...(worst === '' ? {} : { worst }),
    ...(backend === '' ? {} : { backend }),
  }
}

/** ms after which the map is asked for anew: the server has it ready while nothing changes. */
const mapEvery = 5000

/** All entities that are selected, by group. */
export function useEntityMap(selected: Selected, groupBy: string, enabled: boolean) {
  const { api } = useApp()
  return useQuery({
    queryKey: ['entity-map', selected, groupBy],
    enabled,
    queryFn: () =>
      unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/map', {
          params: { path: { namespace: selected.namespace }, query: { ...queryOf(selected), ...(groupBy === '' ? {} : { groupBy }) } },
        }),
      ),
    refetchInterval: mapEvery,
    placeholderData: keepPreviousData,
    retry: false,
  })
}

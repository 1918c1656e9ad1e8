import { useQuery, type UseQueryResult } from '@tanstack/react-query'
import { useMemo } from 'react'
import { unwrap } from '../../api/client'
import { kinds, type Definition, type Kind } from '../../api/definitions'
import type { Role, RoleBinding, User } from '../../api/types'
import { useApp } from '../../app/context'
import { definitionsKey } from '../../live/definitions'
import { rowsOf, type Row } from './rules'

export function useUsers(): UseQueryResult<User[]> {
  const { api } = useApp()
  return useQuery({
    queryKey: definitionsKey('users'),
    queryFn: async () => (await unwrap(api.GET('/api/core/v2/users'))) ?? [],
    retry: false,
  })
}

/** What is listed together: of the whole cluster, and of a namespace or all. */
export interface Both<T> {
  /** The one to show the state of: that of a namespace if a user may see only that. */
  query: UseQueryResult<unknown>
  rows: Row<T>[]
}

function useBoth<T extends Role | RoleBinding>(wide: Kind, narrow: Kind, namespace: string): Both<T> {
  const a = useList<T>(wide, namespace)
  const b = useList<T>(narrow, namespace)
  const rows = useMemo(() => [...rowsOf(wide, a.data), ...rowsOf(narrow, b.data)], [wide, narrow, a.data, b.data])
  return { query: a.error && b.data ? b : a, rows }
}

function useList<T>(kind: Kind, namespace: string): UseQueryResult<T[]> {
  const { definitions } = useApp()
  return useQuery({
    queryKey: definitionsKey(kind.role, namespace),
    queryFn: () => definitions.list<Definition>(kind, namespace) as Promise<unknown[]> as Promise<T[]>,
    retry: false,
  })
}

export const useRoles = (namespace: string): Both<Role> => useBoth<Role>(kinds.clusterroles, kinds.roles, namespace)

export const useBindings = (namespace: string): Both<RoleBinding> =>
  useBoth<RoleBinding>(kinds.clusterrolebindings, kinds.rolebindings, namespace)

import { useQuery } from '@tanstack/react-query'
import { unwrap } from '../api/client'
import type { RightsAnswer } from '../api/types'
import { text } from '../text'
import { useApp } from './context'
import { everywhere } from './search'

/** What the user may do in a namespace, as far as the page knows. */
export interface Rights {
  /** The server has answered. Before, all that follows is a guess. */
  known: boolean
  /** Whether the user may do something to any object of the resource. True until the page knows. */
  can: (verb: string, resource: string) => boolean
  /** Why not, as the title of what is disabled; undefined if the user may. */
  why: (verb: string, resource: string) => string | undefined
}

/** Asks what the user may do. The server decides each act by itself: this only says beforehand what it would refuse. */
export function useRights(namespace: string): Rights {
  const { api } = useApp()
  const rights = useQuery({
    queryKey: ['rights', namespace],
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/auth/rights', { params: { query: namespace === everywhere ? {} : { namespace } } })),
    staleTime: 60_000,
  })
  const can = (verb: string, resource: string) => rights.data === undefined || allows(rights.data, verb, resource)
  return { known: rights.data !== undefined, can, why: (verb, resource) => (can(verb, resource) ? undefined : text.needs(verb, resource)) }
}

export function allows(answer: RightsAnswer, verb: string, resource: string): boolean {
  return (answer.rights ?? []).some(({ verbs, resources }) => has(verbs, verb) && has(resources, resource))
}

function has(names: readonly string[] | null, name: string): boolean {
  return (names ?? []).some((one) => one === '*' || one === name)
}

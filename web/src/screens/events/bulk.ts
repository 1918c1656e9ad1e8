import { actOn, type BulkOptions, type Selection } from '../../api/bulk'
import type { BulkReport, BulkRequest } from '../../api/types'
import { quoted } from '../../search/query'

/** Events to act on: those that were ticked, or all that the list has. */
export type Target =
  | { kind: 'picked'; keys: readonly string[] }
  | {
      kind: 'matching'
      namespace: string
      /** With the state of the events. */ selector: string
      /** What the user searched for. */ search: string
      total: number
    }

export function sizeOf(target: Target): number {
  return target.kind === 'picked' ? target.keys.length : target.total
}

/** Sorts into groups. Map.groupBy is too new for the browsers that people have. */
export function groupBy<T>(list: readonly T[], of: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>()
  for (const one of list) {
    const group = groups.get(of(one))
    if (group) group.push(one)
    else groups.set(of(one), [one])
  }
  return groups
}

/** The condition for some events of one namespace, by their keys namespace/entity/check. */
export function selectorOf(keys: readonly string[]): string {
  const entities = groupBy(keys, (key) => key.split('/')[1] ?? '')
  return [...entities]
    .map(([entity, same]) => {
      const names = same.map((key) => quoted(key.split('/')[2] ?? ''))
      return `event.entity.name == ${quoted(entity)} && event.check.name in [${names.join(', ')}]`
    })
    .map((term) => (entities.size > 1 ? `(${term})` : term))
    .join(' || ')
}

/** Requests, each for a namespace, that act on a target together. */
export function requestsOf(target: Target): Selection[] {
  if (target.kind === 'matching') {
    const { namespace, selector } = target
    return [{ namespace, field_selector: selector, all: selector === '' }]
  }
  const byNamespace = groupBy(target.keys, (key) => key.split('/')[0] ?? '')
  return [...byNamespace].map(([namespace, keys]) => ({ namespace, field_selector: selectorOf(keys), all: false }))
}

/** Acts on all events of a target, and reports how far it is. */
export function act(
  fetch: typeof globalThis.fetch,
  target: Target,
  action: Pick<BulkRequest, 'action' | 'reason' | 'expire'>,
  options: BulkOptions,
): Promise<BulkReport> {
  return actOn(fetch, requestsOf(target), { resource: 'events', ...action }, options)
}

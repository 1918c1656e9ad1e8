import type { Selection } from '../../api/bulk'
import { quoted } from '../../search/query'
import { groupBy } from '../events/bulk'
import type { Selected } from './use-entities'

/** Entities to act on: the ticked ones, or all of the list. */
export type Target =
  | { kind: 'picked'; keys: readonly string[] }
  | { kind: 'matching'; selected: Selected; /** The search, as a condition for events. */ condition: string; total: number }

export const sizeOf = (target: Target): number => (target.kind === 'picked' ? target.keys.length : target.total)

/** Names in one selector at most, which may have 64 KiB. */
const together = 250

/** Whether a selector can say which entities are meant: it knows nothing of agents, events and backends. */
export const isSelector = (target: Target): boolean =>
  target.kind === 'matching' && target.selected.agent === '' && target.selected.worst === '' && target.selected.backend === ''

/** Conditions for entities by their keys namespace/name, some for each namespace. field names the entity. */
export function selectionsOf(keys: readonly string[], field: string): { namespace: string; field_selector: string }[] {
  return [...groupBy(keys, (key) => key.split('/')[0] ?? '')].flatMap(([namespace, same]) => {
    const names = same.map((key) => quoted(key.slice(namespace.length + 1)))
    return Array.from({ length: Math.ceil(names.length / together) }, (_, i) => ({
      namespace,
      field_selector: `${field} in [${names.slice(i * together, (i + 1) * together).join(', ')}]`,
    }))
  })
}

/** Requests that act on a target together; keys has the keys of its entities, if a selector cannot say them. */
export function requestsOf(target: Target, keys: readonly string[]): Selection[] {
  if (target.kind === 'matching' && isSelector(target)) {
    const { namespace, selector } = target.selected
    return [{ namespace, field_selector: selector, all: selector === '' }]
  }
  return selectionsOf(keys, 'entity.name').map((one) => ({ ...one, all: false }))
}

/** The same as conditions for events, for a silence and for the count of events. */
export function eventConditions(target: Target, keys: readonly string[]): { namespace: string; field_selector: string }[] {
  if (target.kind === 'matching' && isSelector(target)) return [{ namespace: target.selected.namespace, field_selector: target.condition }]
  return selectionsOf(keys, 'event.entity.name')
}

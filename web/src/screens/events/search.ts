import { quoted } from '../../search/query'
import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the list of events, all of it in the address. */
export interface EventsSearch extends SharedSearch {
  q?: string | undefined
  /** all, failing, open (failing and neither silenced nor acknowledged) or silenced. */
  status?: string | undefined
  sort?: string | undefined
  group?: string | undefined
  /** Key of the event whose detail is open. */
  event?: string | undefined
  /** The time of its timeline: 1h, 7d, or from-until in Unix seconds. */
  time?: string | undefined
  /** Names of its metrics that are shown, with commas between them. */
  metrics?: string | undefined
}

export function eventsSearch(search: Record<string, unknown>): EventsSearch {
  const out: EventsSearch = { ...sharedSearch(search) }
  for (const key of ['q', 'status', 'sort', 'group', 'event', 'time', 'metrics'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  return out
}

const selectors: Record<string, string> = {
  failing: 'event.is_incident == true',
  open: 'event.is_incident == true && event.is_silenced == false',
  silenced: 'event.is_incident == true && event.is_silenced == true',
  passing: 'event.is_incident == false',
}

export function statusSelector(status: string | undefined): string {
  return status === undefined ? '' : (selectors[status] ?? '')
}

const fields: Record<string, string> = { entity: 'event.entity.name', check: 'event.check.name', namespace: 'event.entity.namespace' }

/** The condition for the events of a group. */
export function groupTerm(by: string, value: string): string {
  const field = fields[by] ?? `event.labels.${by.replace(/^label:/, '')}`
  // No comparison holds for a label that is not there.
  return value === '' && !(by in fields) ? `!(${field} =~ "")` : `${field} == ${quoted(value)}`
}

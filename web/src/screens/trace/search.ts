import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

export interface TraceSearch extends SharedSearch {
  /** namespace/entity/check. */
  event?: string | undefined
  /** The newest moment that is shown, Unix seconds. */
  until?: number | undefined
  /** The simulation is open. */
  simulate?: boolean | undefined
}

export function traceSearch(search: Record<string, unknown>): TraceSearch {
  const event = textIn(search, 'event')
  const until = Number(search.until)
  return {
    ...sharedSearch(search),
    ...(event === undefined ? {} : { event }),
    ...(until > 0 ? { until } : {}),
    ...(search.simulate === true || search.simulate === 'true' ? { simulate: true } : {}),
  }
}

/** The parts of an event's key; names have no slashes. */
export function partsOf(event: string): { namespace: string; entity: string; check: string } {
  const [namespace = '', entity = '', check = ''] = event.split('/')
  return { namespace, entity, check }
}

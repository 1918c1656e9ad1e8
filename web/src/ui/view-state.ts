import type { EventRef } from '../live/event'
import { groups, type Group } from '../store/row'

/** The view in the address bar: a link sent to a colleague shows the same. */
export interface ViewState {
  /** "-" for all. */
  namespace: string
  query: string
  groups: Group[]
  incidentsFirst: boolean
  event: EventRef | undefined
}

export function parseView(search: string): ViewState {
  const params = new URLSearchParams(search)
  const wanted = (params.get('status') ?? '').split(',')
  const [namespace, entity, check, ...rest] = (params.get('event') ?? '').split('/')
  return {
    namespace: params.get('ns') || '-',
    query: params.get('q') ?? '',
    groups: groups.filter((group) => wanted.includes(group)),
    incidentsFirst: params.get('order') !== 'name',
    event: namespace && entity && check && rest.length === 0 ? { namespace, entity, check } : undefined,
  }
}

/** The query string, with its question mark; empty for the default view. */
export function formatView(view: ViewState): string {
  const params = new URLSearchParams()
  if (view.namespace !== '-') params.set('ns', view.namespace)
  if (view.query !== '') params.set('q', view.query)
  if (view.groups.length > 0) params.set('status', view.groups.join(','))
  if (!view.incidentsFirst) params.set('order', 'name')
  if (view.event) params.set('event', `${view.event.namespace}/${view.event.entity}/${view.event.check}`)
  const s = params.toString().replaceAll('%2F', '/').replaceAll('%2C', ',').replaceAll('%3A', ':')
  return s === '' ? '' : '?' + s
}

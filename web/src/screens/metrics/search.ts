import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

/** The state of the explorer, all of it in the address. */
export interface MetricsSearch extends SharedSearch {
  /** What is plotted, as Graphite's targets. */
  target?: string[] | undefined
  time?: string | undefined
  /** namespace/entity/check of the events that lie over the plot. */
  event?: string | undefined
  /** table, or else the plot. */
  view?: string | undefined
  /** Where names are found: tags, or else the tree. */
  find?: string | undefined
}

export function metricsSearch(search: Record<string, unknown>): MetricsSearch {
  const out: MetricsSearch = { ...sharedSearch(search) }
  for (const key of ['time', 'event', 'view', 'find'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  const targets = [search.target].flat().filter((one) => typeof one === 'string' && one !== '') as string[]
  if (targets.length > 0) out.target = targets
  return out
}

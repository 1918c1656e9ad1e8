import { sharedSearch, textIn, type SharedSearch } from '../../app/search'

export const tabs = ['pipelines', 'handlers', 'filters', 'mutators'] as const

export type PipelinesTab = (typeof tabs)[number]

export interface PipelinesSearch extends SharedSearch {
  /** Default: pipelines. */
  tab?: PipelinesTab | undefined
  sort?: string | undefined
  /** namespace/name of the open definition. */
  open?: string | undefined
  /** namespace/entity/check of the event of the dry run. */
  event?: string | undefined
  /** When the event of the dry run comes, Unix seconds. */
  at?: number | undefined
}

export function pipelinesSearch(search: Record<string, unknown>): PipelinesSearch {
  const out: PipelinesSearch = { ...sharedSearch(search) }
  const tab = tabs.find((one) => one === search.tab)
  if (tab !== undefined && tab !== 'pipelines') out.tab = tab
  for (const key of ['sort', 'open', 'event'] as const) {
    const value = textIn(search, key)
    if (value !== undefined) out[key] = value
  }
  const at = Number(search.at)
  if (at > 0) out.at = at
  return out
}

import type { QueuesSearch } from './search'

/** What each part of the screen gets. */
export interface PartProps {
  namespace: string
  search: QueuesSearch
  change: (part: { [K in keyof QueuesSearch]?: QueuesSearch[K] }) => void
}

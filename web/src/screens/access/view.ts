import type { ReactNode } from 'react'
import type { AccessSearch } from './search'

/** What each view of the screen gets. */
export interface ViewProps {
  search: AccessSearch
  namespace: string
  change: (part: { [K in keyof AccessSearch]?: string | undefined }) => void
  /** Draws the screen around a view: the buttons of its bar, its table, and the detail beside it. */
  frame: (parts: { bar?: ReactNode; detail?: ReactNode; flush?: boolean; children: ReactNode }) => ReactNode
}

import { createContext, use } from 'react'
import type { Api } from '../api/client'
import type { Definitions } from '../api/definitions'
import type { LiveConnection } from '../live/connection'
import type { BrowserSignIn } from '../session/browser'
import type { Session } from '../session/session'

/** What all screens share. */
export interface App {
  session: Session
  browser: BrowserSignIn
  api: Api
  definitions: Definitions
  live: LiveConnection
}

export const AppContext = createContext<App | null>(null)

export function useApp(): App {
  const app = use(AppContext)
  if (!app) throw new Error('useApp outside of the app')
  return app
}

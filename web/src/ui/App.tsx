import { useSyncExternalStore } from 'react'
import type { Client } from '../session/client'
import type { BrowserSignIn } from '../session/browser'
import type { Session } from '../session/session'
import { EventsPage } from './EventsPage'
import { SignIn } from './SignIn'

export function App({ session, browser, client }: { session: Session; browser: BrowserSignIn; client: Client }) {
  const user = useSyncExternalStore(session.subscribe, () => session.user)
  if (user === undefined) return <SignIn session={session} browser={browser} />
  return <EventsPage key={user} user={user} session={session} client={client} />
}

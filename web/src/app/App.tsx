import { RouterProvider } from '@tanstack/react-router'
import { useSyncExternalStore } from 'react'
import { SignIn } from '../screens/signin/SignIn'
import { WallLink } from '../screens/signin/WallLink'
import { text } from '../text'
import { EmptyState } from '../widgets/EmptyState'
import { useApp } from './context'
import { router } from './router'

/** The sign-in, or the screens behind it. */
export function App() {
  const { session, browser } = useApp()
  const state = useSyncExternalStore(session.subscribe, () => session.state)
  switch (state.phase) {
    case 'unknown':
      return state.reason === undefined ? null : <EmptyState title={text.unreachable} help={text.asksAgain(state.reason)} />
    case 'out':
      return browser.key === undefined ? <SignIn ended={state.ended} /> : <WallLink />
    case 'in':
      return <RouterProvider key={JSON.stringify([state.user, state.groups])} router={router} />
  }
}

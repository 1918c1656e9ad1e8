import { RouterProvider } from '@tanstack/react-router'
import { useSyncExternalStore } from 'react'
import { SignIn } from '../screens/signin/SignIn'
import { useApp } from './context'
import { router } from './router'

/** The sign-in, or the screens behind it. */
export function App() {
  const { session } = useApp()
  const state = useSyncExternalStore(session.subscribe, () => session.state)
  switch (state.phase) {
    case 'unknown':
      return null
    case 'out':
      return <SignIn ended={state.ended} />
    case 'in':
      return <RouterProvider key={state.user} router={router} />
  }
}

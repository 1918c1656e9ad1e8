import './style/base.css'
import '@mantine/core/styles.layer.css'
import '@mantine/notifications/styles.layer.css'
import '@mantine/spotlight/styles.layer.css'
import { MantineProvider } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { setNonce } from 'get-nonce'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { ApiError, newApi } from './api/client'
import { Definitions } from './api/definitions'
import { App } from './app/App'
import { AppContext } from './app/context'
import { loadScreen } from './app/router'
import { applyContrast, applyScheme } from './app/preferences'
import { theme, variables } from './app/theme'
import { LiveConnection } from './live/connection'
import { BrowserSignIn } from './session/browser'
import { Session } from './session/session'

const session: Session = new Session({
  ...(typeof BroadcastChannel === 'function' ? { channel: new BroadcastChannel('lapwing.session') } : {}),
  ...(navigator.locks ? { exclusively: (f) => navigator.locks.request('lapwing.session', f) } : {}),
  renewed: () => live.renew(),
})
const live = new LiveConnection({
  connect: () => new WebSocket(`${location.protocol === 'https:' ? 'wss:' : 'ws:'}//${location.host}/api/lapwing/v1/live`),
  renew: () => session.fetch('/api/lapwing/v1/session', { cache: 'no-store' }),
})
const browser = new BrowserSignIn({ session, storage: sessionStorage })
/** When the page fetched itself anew, in the tab's storage, and the shortest time between two such moments, in ms. */
const reloaded = 'lapwing.reloaded'
const reloadEvery = 30_000

applyScheme()
applyContrast()
const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? ''
setNonce(nonce) // for the library with which dialogs stop the page behind them from scrolling
/** A refusal stays one; what the network or the server failed to do is tried again. */
const retry = (failures: number, err: Error) => failures < 3 && !(err instanceof ApiError && err.status < 500)
const queries = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false, staleTime: 5000, retry } } })

let who = ''
session.subscribe(() => {
  const { state } = session
  const now = state.phase === 'in' ? JSON.stringify([state.user, state.groups]) : ''
  if (now === who) return
  who = now
  // The previous user's connection and answers must not reach the next user.
  live.reset()
  queries.clear()
  if (now !== '') live.ahead()
})

// A new build of the backend has other files: a page of the old one fetches itself anew when it misses one, once.
addEventListener('vite:preloadError', () => {
  const last = Number(sessionStorage.getItem(reloaded))
  if (Date.now() - last < reloadEvery) return
  sessionStorage.setItem(reloaded, String(Date.now()))
  location.reload()
})

const back = await browser.finish(new URLSearchParams(location.search))
if (back !== undefined) history.replaceState(null, '', back)
// The link of a screen on a wall has an API key where no server's log sees it.
if (location.pathname === '/wall' && location.hash.length > 1) {
  browser.key = location.hash.slice(1)
  history.replaceState(null, '', location.pathname + location.search)
}
loadScreen(location.pathname) // comes while the sign-in is looked up
if (session.state.phase === 'unknown') void session.begin()

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <Notifications />
      <QueryClientProvider client={queries}>
        <AppContext value={{ session, browser, api: newApi(session.fetch), definitions: new Definitions(session.fetch), live }}>
          <App />
        </AppContext>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
)

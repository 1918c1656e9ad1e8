import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { BrowserSignIn } from './session/browser'
import { Client } from './session/client'
import { Session } from './session/session'
import './style/base.css'
import { App } from './ui/App'

const session = new Session({
  storage: sessionStorage,
  ...(typeof BroadcastChannel === 'function' ? { channel: new BroadcastChannel('lapwing.session') } : {}),
})

const browser = new BrowserSignIn({ session, storage: sessionStorage })
if (await browser.finish(new URLSearchParams(location.search))) history.replaceState(null, '', location.pathname)

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <App session={session} browser={browser} client={new Client(session)} />
  </StrictMode>,
)

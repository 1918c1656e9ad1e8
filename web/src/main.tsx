import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { Client } from './session/client'
import { Session } from './session/session'
import './style/base.css'
import { App } from './ui/App'

const session = new Session({
  storage: sessionStorage,
  ...(typeof BroadcastChannel === 'function' ? { channel: new BroadcastChannel('lapwing.session') } : {}),
})

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <App session={session} client={new Client(session)} />
  </StrictMode>,
)

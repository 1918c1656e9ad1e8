import { text } from '../text'
import type { StreamState } from './protocol'

export interface Health {
  tone: 'live' | 'busy' | 'late' | 'down'
  label: string
  help: string
}

export interface HealthInput {
  stream: StreamState
  namespace: string
  synced: boolean
  size: number
  heard: number
  lag: { ms: number; at: number }
  now: number
}

// The backend sends a comment every 5 s when nothing happens.
const silentAfter = 8_000
const lateAfter = 2_000

/** How fresh the page is, in words. */
export function health(input: HealthInput): Health {
  const { stream, now, synced } = input
  const silent = Math.max(0, Math.round((now - input.heard) / 1000))
  switch (stream.phase) {
    case 'denied':
      return { tone: 'down', label: text.noAccess, help: text.denied(stream.reason, input.namespace) }
    case 'connecting':
      if (synced) return { tone: 'down', label: text.reconnecting(silent), help: '' }
      return { tone: 'busy', label: text.connecting, help: '' }
    case 'waiting': {
      const help = text.nextTry(stream.reason, Math.round((stream.until - now) / 1000))
      return { tone: 'down', label: synced ? text.reconnecting(silent) : text.cannotConnect, help }
    }
    case 'loading':
      return { tone: 'busy', label: text.loading(synced ? 0 : input.size), help: '' }
    case 'live': {
      const lag = now - input.lag.at < 3_000 ? input.lag.ms : 0
      const behind = now - input.heard > silentAfter ? now - input.heard : lag
      if (behind > lateAfter) return { tone: 'late', label: text.behind(behind / 1000), help: '' }
      return { tone: 'live', label: text.live, help: text.liveHelp }
    }
  }
}

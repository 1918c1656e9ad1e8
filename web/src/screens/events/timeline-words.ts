import type { Notification, Silenced, StateChange } from '../../api/types'
import { text } from '../../text'

/** What a change brought, in words. */
export function wordOf(change: StateChange): string {
  if (change.state === 'deleted') return text.timeline.ended
  const word = change.missing ? text.timeline.missing : text.status(change.status)
  return change.silenced ? `${word}, ${text.silenced.toLowerCase()}` : word
}

/** Who was told, and how that ended. */
export function told(n: Notification): string {
  const whom = (n.recipients ?? []).length > 0 ? ` → ${(n.recipients ?? []).join(', ')}` : ''
  return `${n.handler ?? ''}${whom}: ${n.result}${n.error ? `, ${n.error}` : ''}`
}

/** Who silenced or acknowledged, and why. */
export function silenceWord({ acknowledgement, creator = '', reason = '' }: Silenced): string {
  return text.timeline.by(acknowledgement ? text.timeline.acknowledged : text.timeline.silenced, creator, reason)
}

import { text } from '../../text'
import { EmptyState } from '../../widgets/EmptyState'

/** Why there is no list of events. */
export function Refused({ status, reason }: { status: number; reason: string }) {
  if (status === 400) return <EmptyState title={text.unreadable} help={reason} />
  return <EmptyState title={text.noAccess} help={status === 403 ? text.noAccessHelp('list', 'events') : reason} />
}

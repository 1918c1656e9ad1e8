import type { StreamState } from '../live/protocol'
import { text } from '../text'
import { CopyButton } from './CopyButton'
import css from './EmptyState.module.css'
import { Logo } from './icons'

/** Before the first row: grey rows, and the reason if the backend does not answer. */
export function Skeleton({ stream, namespace }: { stream: StreamState; namespace: string }) {
  if (stream.phase === 'denied') {
    return (
      <div className={css.empty} role="alert">
        <h2>{text.noAccess}</h2>
        <p>{text.denied(stream.reason, namespace)}</p>
      </div>
    )
  }
  if (stream.phase === 'waiting') {
    return (
      <div className={css.empty} role="status">
        <h2>{text.cannotConnect}</h2>
        <p>{text.retrying(stream.reason)}</p>
      </div>
    )
  }
  return (
    <div className={css.skeleton} aria-hidden="true">
      {Array.from({ length: 12 }, (_, i) => (
        <span key={i} />
      ))}
    </div>
  )
}

export function NothingMatches({ onClear }: { onClear: () => void }) {
  return (
    <div className={css.empty}>
      <h2>{text.nothingMatches}</h2>
      <p>{text.nothingMatchesHelp}</p>
      <button className={css.button} onClick={onClear}>
        {text.showAll}
      </button>
    </div>
  )
}

/** There are no events yet: show how to start an agent and a check. */
export function EmptyState({ namespace }: { namespace: string }) {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws'
  const ns = namespace === '-' ? 'default' : namespace
  const inNamespace = ns === 'default' ? [] : [`--namespace ${ns}`]
  const agent = lines('lapwing agent', `--backend-url ${scheme}://${location.hostname}:8081`, '--name web1', '--subscriptions linux', ...inNamespace)
  const check = lines('lapwing check create disk', `--command 'df -h /'`, '--interval 10', '--subscriptions linux', ...inNamespace)
  return (
    <div className={css.empty}>
      <Logo size={56} />
      <h2>{text.empty}</h2>
      <p>{text.emptyHelp}</p>
      <Command command={agent} />
      <p>{text.emptyCheck}</p>
      <Command command={check} />
      <p className={css.foot}>{text.emptyStock}</p>
    </div>
  )
}

/** A long command over several lines of a shell. */
function lines(...parts: string[]): string {
  return parts.join(' \\\n  ')
}

function Command({ command }: { command: string }) {
  return (
    <div className={css.command}>
      <code>{command}</code>
      <CopyButton value={() => command} />
    </div>
  )
}

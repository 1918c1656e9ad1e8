import { everywhere } from '../../app/search'
import { text } from '../../text'
import { CopyButton } from '../../widgets/CopyButton'
import { EmptyState } from '../../widgets/EmptyState'
import css from '../../widgets/EmptyState.module.css'

/** There are no events yet: show how to start an agent and a check. */
export function FirstEvents({ namespace }: { namespace: string }) {
  const agents = document.querySelector<HTMLMetaElement>('meta[name="agents"]')?.content ?? ''
  const ns = namespace === everywhere ? 'default' : namespace
  const inNamespace = ns === 'default' ? [] : [`--namespace ${ns}`]
  const agent = lines('lapwing agent', `--backend-url ${agents.replace('//:', `//${location.hostname}:`)}`, '--name web1', '--subscriptions linux', ...inNamespace)
  const check = lines('lapwing check create disk', `--command 'df -h /'`, '--interval 10', '--subscriptions linux', ...inNamespace)
  return (
    <EmptyState title={text.empty} help={text.emptyHelp}>
      <Command command={agent} />
      <p>{text.emptyCheck}</p>
      <Command command={check} />
      <p className={css.foot}>{text.emptyStock}</p>
    </EmptyState>
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

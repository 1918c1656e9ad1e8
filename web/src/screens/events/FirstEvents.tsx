import { Button, Group } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { kinds } from '../../api/definitions'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { text } from '../../text'
import { CopyButton } from '../../widgets/CopyButton'
import { EmptyState } from '../../widgets/EmptyState'
import css from '../../widgets/EmptyState.module.css'
import { done, failed } from '../../widgets/toast'

/** There are no events yet: show how to start an agent. */
export function FirstEvents({ namespace }: { namespace: string }) {
  const agents = document.querySelector<HTMLMetaElement>('meta[name="agents"]')?.content ?? ''
  const ns = namespace === everywhere ? 'default' : namespace
  const inNamespace = ns === 'default' ? [] : [`--namespace ${ns}`]
  const agent = lines(
    'lapwing agent',
    `--backend-url ${agents.replace('//:', `//${location.hostname}:`)}`,
    '--name web1',
    '--subscriptions linux',
    ...inNamespace,
  )
  return (
    <EmptyState title={text.empty} help={text.emptyHelp}>
      <Command command={agent} />
      <p className={css.foot}>{text.emptyStock}</p>
    </EmptyState>
  )
}

/** There are agents, and no check: offer a first one. */
export function FirstCheck({ namespace }: { namespace: string }) {
  const { definitions } = useApp()
  const { why } = useRights(namespace)
  const ns = namespace === everywhere ? 'default' : namespace
  const make = useMutation({
    mutationFn: () => definitions.create(kinds.checks, { ...firstCheck, metadata: { name: 'disk', namespace: ns } }),
    onSuccess: () => done(text.first.made('disk')),
    onError: (err) => failed(text.first.make, err),
  })
  return (
    <EmptyState title={text.first.title} help={text.first.help}>
      <div className={css.command}>
        <code>{firstCheck.command}</code>
      </div>
      <Group>
        <Button
          loading={make.isPending}
          disabled={why('create', 'checks') !== undefined}
          title={why('create', 'checks')}
          onClick={() => make.mutate()}
        >
          {text.first.make}
        </Button>
        <Button
          variant="default"
          renderRoot={(props) => (
            <Link to="/checks" search={{ ...(namespace === everywhere ? {} : { ns: namespace }), act: 'new' }} {...props} />
          )}
        >
          {text.first.other}
        </Button>
      </Group>
    </EmptyState>
  )
}

/** Warns when a file system is nearly full, on any system with df. */
const firstCheck = {
  command: `df -P / | awk 'NR==2 { sub("%", "", $5); print "/ is " $5 "% full"; exit $5 > 95 ? 2 : $5 > 85 }'`,
  interval: 10,
  subscriptions: ['linux'],
  publish: true,
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

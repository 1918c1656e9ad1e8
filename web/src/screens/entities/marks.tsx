import { entitiesText as t } from '../../text/entities'
import { Icon, StatusMark } from '../../widgets/icons'
import css from './EntitiesScreen.module.css'
import { isMark } from './present'

/** The worst class of an entity's events, by shape and word. */
export function WorstWord({ worst }: { worst: string }) {
  return (
    <span className={css.word} data-mark={worst}>
      {isMark(worst) ? <StatusMark mark={worst} /> : <Icon name={worst === 'silenced' ? 'muted' : 'ended'} />}
      {t.worst[worst as keyof typeof t.worst] ?? worst}
    </span>
  )
}

const agentMarks = { connected: 'ok', late: 'warning', gone: 'critical' } as const

/** The state of an entity's agent, by shape and word. */
export function AgentWord({ agent }: { agent: string }) {
  const mark = agentMarks[agent as keyof typeof agentMarks]
  return (
    <span className={css.word} data-mark={mark ?? 'none'}>
      {mark ? <StatusMark mark={mark} size={12} /> : null}
      {t.agent[agent as keyof typeof t.agent] ?? agent}
    </span>
  )
}

import { Tooltip } from '@mantine/core'
import { useAnnounce } from '../app/announce'
import { span, useNow } from '../app/time'
import type { LiveState } from '../live/connection'
import { text } from '../text'
import css from './LiveBadge.module.css'

/** How fresh the screen is. */
export function LiveBadge({ state, ready }: { state: LiveState; ready: boolean }) {
  const now = useNow()
  const { kind, words, help } = describe(state, ready, now)
  useAnnounce(state.phase === 'waiting' ? text.announceLost : ready ? text.live : undefined)
  return (
    <Tooltip label={help} multiline maw={320}>
      <span className={css.badge} data-kind={kind} data-testid="badge">
        <span className={css.dot} aria-hidden="true" />
        {words}
      </span>
    </Tooltip>
  )
}

/** The backend sends a sign of life every 5 s. */
const lateAfter = 8

function describe(state: LiveState, ready: boolean, now: number): { kind: string; words: string; help: string } {
  switch (state.phase) {
    case 'live': {
      const behind = (now - state.heard) / 1000
      if (!ready) return { kind: 'wait', words: text.loading(0), help: text.liveHelp }
      if (behind < lateAfter) return { kind: 'live', words: text.live, help: text.liveHelp }
      return { kind: 'late', words: text.behind(Math.round(behind)), help: text.retrying(text.nothingHeard(span(behind))) }
    }
    case 'connecting':
      return { kind: 'wait', words: text.connecting, help: text.connecting }
    case 'waiting':
      return {
        kind: 'late',
        words: text.cannotConnect,
        help: text.nextTry(state.reason, Math.ceil((state.until - now) / 1000)),
      }
    case 'denied':
      return { kind: 'denied', words: state.status === 400 ? text.unreadable : text.noAccess, help: state.reason }
  }
}

import { text } from '../text'
import css from './HistoryBand.module.css'
import { markOf } from './icons'
import type { PastResult } from '../screens/events/present'

/** A check's past results, oldest first: colour and height show the status, the title the time. */
export function HistoryBand({ history, now }: { history: readonly PastResult[]; now: number }) {
  const first = history[0]
  return (
    <figure className={css.figure}>
      <div className={css.band} role="img" aria-label={text.historySummary(history.map((h) => h.status))}>
        {history.map((result, i) => (
          <span key={i} className={css.slot} title={describe(result)}>
            <span className={css.bar} data-mark={markOf(result.status)} />
          </span>
        ))}
      </div>
      <figcaption>
        <span>{first && first.executed > 0 ? text.ago(now - first.executed) : ''}</span>
        <span>{text.historySummary(history.map((h) => h.status))}</span>
      </figcaption>
    </figure>
  )
}

function describe(result: PastResult): string {
  const word = text.status(result.status)
  const code = result.status > 2 ? ` (${result.status})` : ''
  return result.executed > 0 ? `${word}${code} · ${text.dateTime(result.executed)}` : word + code
}

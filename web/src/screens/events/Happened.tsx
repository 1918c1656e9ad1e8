import { Button } from '@mantine/core'
import { useState } from 'react'
import type { Notification, Silenced, StateChange } from '../../api/types'
import { usePreferences } from '../../app/preferences'
import { clock, span } from '../../app/time'
import { DiffView } from '../../editor/DiffView'
import { text } from '../../text'
import { markOf, StatusMark } from '../../widgets/icons'
import { plainOutput } from './present'
import css from './Timeline.module.css'
import { silenceWord, told, wordOf } from './timeline-words'

interface Props {
  changes: readonly StateChange[]
  before: StateChange | undefined
  notifications: readonly Notification[]
  silences: readonly Silenced[]
}

/** Entries that are shown before the user asks for all. */
const firstEntries = 8

interface Entry {
  at: number
  key: string
  change?: StateChange
  /** The change before it. */
  earlier?: StateChange | undefined
  words: string
}

/** All that the band shows as a list, newest first. The output of a change can be compared with the one before. */
export default function Happened({ changes, before, notifications, silences }: Props) {
  const { time } = usePreferences()
  const [all, setAll] = useState(false)
  const [open, setOpen] = useState<string>()
  const entries: Entry[] = [
    ...changes.map((change, i) => {
      const at = Date.parse(change.time) / 1000
      const next = changes[i - 1]
      const length = next ? ` · ${span(Date.parse(next.time) / 1000 - at)}` : ''
      return { at, key: `c${change.time}${i}`, change, earlier: changes[i + 1] ?? before, words: `${wordOf(change)}${length}` }
    }),
    ...notifications.map((n) => ({ at: n.at / 1000, key: `n${n.id}-${n.attempt}-${n.at}`, words: told(n) })),
    ...silences.map((silence) => ({ at: silence.begin ?? 0, key: `s${silence.metadata?.name ?? ''}`, words: silenceWord(silence) })),
  ].sort((a, b) => b.at - a.at)
  if (entries.length === 0) return null
  const shown = all ? entries : entries.slice(0, firstEntries)
  return (
    <details className={css.happened}>
      <summary>
        {text.timeline.happened} ({text.timeline.rows(entries.length)})
      </summary>
      <ol>
        {shown.map(({ at, key, change, earlier, words }) => (
          <li key={key}>
            <time dateTime={new Date(at * 1000).toISOString()}>{clock(at, time)}</time>
            <span className={css.words}>
              {change && change.state !== 'deleted' && <StatusMark mark={markOf(change.status)} size={14} />} {words}
              {change && change.output !== '' && <code>{firstLine(change.output)}</code>}
            </span>
            {change && earlier && earlier.state !== 'deleted' && change.state !== 'deleted' && (
              <Button
                size="compact-xs"
                variant="subtle"
                aria-expanded={open === key}
                aria-label={`${text.timeline.compare}: ${clock(at, time)}`}
                title={text.timeline.compare}
                onClick={() => setOpen(open === key ? undefined : key)}
              >
                {text.timeline.compareShort}
              </Button>
            )}
            {change && open === key && (
              <div className={css.diff} role="group" aria-label={text.timeline.compared}>
                <DiffView before={plainOutput(earlier?.output ?? '')} after={plainOutput(change.output)} />
              </div>
            )}
          </li>
        ))}
      </ol>
      {shown.length < entries.length && (
        <Button size="compact-xs" variant="subtle" onClick={() => setAll(true)}>
          {text.timeline.all(entries.length)}
        </Button>
      )}
    </details>
  )
}

function firstLine(output: string): string {
  return plainOutput(output).split('\n')[0]?.slice(0, 120) ?? ''
}

import { span } from '../app/time'
import { text } from '../text'
import type { Mark } from './icons'
import css from './StateBand.module.css'

const marks: Record<string, Mark> = { o: 'ok', w: 'warning', u: 'unknown', m: 'unknown', c: 'critical' }
const words: Record<string, string> = {
  o: text.status(0),
  w: text.status(1),
  u: text.status(3),
  m: text.timeline.missing,
  c: text.status(2),
  '-': text.timeline.nothing,
}

/** A report's band: the worst state in each of its equal parts, by colour and height. */
export function StateBand({ band, seconds }: { band: string; seconds: number }) {
  const parts = [...band]
  const counted = Object.entries(words)
    .map(([letter, word]) => ({ word, n: parts.filter((one) => one === letter).length }))
    .filter(({ n }) => n > 0)
  const length = span(seconds / Math.max(1, parts.length))
  return (
    <span
      className={css.band}
      role="img"
      aria-label={counted.map(({ word, n }) => text.band(word, n, parts.length)).join(', ')}
      title={text.bandPart(length)}
    >
      {parts.map((letter, i) => (
        <span key={i} data-mark={marks[letter] ?? 'none'} />
      ))}
    </span>
  )
}

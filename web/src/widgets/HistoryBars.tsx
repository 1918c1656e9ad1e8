import { memo } from 'react'
import css from './HistoryBars.module.css'

// Height shows the status as colour does.
const heights = [5, 9, 14, 11]
const classes = [css.ok, css.warning, css.critical, css.unknown]
const step = 5
const total = 14
/** Results that the server keeps of a check. */
const maxHistory = 21

/** A row's last statuses as bars, newest at the right: one path a colour, so that a row stays cheap to draw. */
export const HistoryBars = memo(function HistoryBars({ statuses }: { statuses: readonly number[] }) {
  const paths = ['', '', '', '']
  const first = maxHistory - statuses.length
  statuses.forEach((status, i) => {
    const kind = Math.min(status, 3)
    const height = heights[kind] ?? total
    paths[kind] += `M${(first + i) * step} ${total - height}h3v${height}h-3z`
  })
  return (
    <svg className={css.bars} width={maxHistory * step} height={total} aria-hidden="true">
      {paths.map((d, status) => d !== '' && <path key={status} className={classes[status]} d={d} />)}
    </svg>
  )
})

import { memo } from 'react'
import type { Row } from '../store/row'
import { text } from '../text'
import css from './EventList.module.css'
import { HistoryBars } from './HistoryBars'
import { Icon, markOf, StatusMark } from './icons'

interface Props {
  id: string
  row: Row
  /** The row changes in place, and its revision with it. */
  revision: number
  index: number
  /** Unix seconds. */
  now: number
  /** Show the namespace, too. */
  namespace: boolean
  atCursor: boolean
  open: boolean
}

const flashFor = 1600

export const EventRow = memo(function EventRow({ id, row, index, now, namespace, atCursor, open }: Props) {
  const flash = performance.now() - row.changed < flashFor
  return (
    <div
      id={id}
      className={css.row}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={open}
      data-key={row.key}
      data-entity={row.entity}
      data-check={row.check}
      data-mark={markOf(row.status)}
      data-silenced={row.silenced}
      data-gone={row.gone}
      data-cursor={atCursor}
      data-odd={index % 2 === 1}
      data-flash={flash}
    >
      <span role="gridcell" className={css.status}>
        <StatusMark mark={markOf(row.status)} />
        <span className={css.word}>{row.gone ? text.gone : text.status(row.status)}</span>
      </span>
      <span role="gridcell" className={css.entity} title={row.entity}>
        {row.entity}
        {namespace && <small>{row.namespace}</small>}
      </span>
      <span role="gridcell" className={css.check} title={row.check}>
        {row.check}
      </span>
      <span role="gridcell" className={css.output}>
        {row.output}
      </span>
      <span role="gridcell" className={css.history}>
        <HistoryBars statuses={row.history} />
      </span>
      <span role="gridcell" className={css.occurrences}>
        {row.occurrences > 0 && text.compact(row.occurrences)}
      </span>
      <span role="gridcell" className={css.silenced}>
        {row.silenced && (
          <>
            <Icon name="muted" size={15} />
            <span>{text.silenced}</span>
          </>
        )}
      </span>
      <span role="gridcell" className={css.seen} title={row.seen > 0 ? text.dateTime(row.seen) : undefined}>
        {row.seen > 0 ? text.age(now - row.seen) : text.never}
      </span>
    </div>
  )
})

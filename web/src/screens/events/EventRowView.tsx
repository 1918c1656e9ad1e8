import { memo } from 'react'
import type { Preferences } from '../../app/preferences'
import { Age, useNow } from '../../app/time'
import type { EventRow, Explained } from '../../api/types'
import { keyOf } from '../../live/event-list'
import { text } from '../../text'
import { HistoryBars } from '../../widgets/HistoryBars'
import { Icon, markOf, StatusMark } from '../../widgets/icons'
import { PickBox } from '../../widgets/PickBox'
import css from './EventsScreen.module.css'
import { Told } from './Told'

interface Props {
  /** Undefined until it is loaded. */
  row: EventRow | undefined
  index: number
  top: number
  height: number
  gone: boolean
  /** performance.now() of the last change of its status. */
  changed: number | undefined
  selected: boolean
  cursor: boolean
  /** Show the namespace, too. */
  namespace: boolean
  onOpen: (key: string, index: number) => void
  /** Rows can be ticked. */
  picked?: boolean
  onPick?: (key: string) => void
  /** Whether somebody was told, in place of the history; null until the answer has come. */
  told?: Explained | null
}

const flashFor = 1600

/** The height of a row in px: below this width of the list it has two lines. */
export const rowHeight = (width: number, density: Preferences['density']): number =>
  width > 0 && width <= 520 ? 62 : density === 'compact' ? 30 : 40

/** A row of a list of events. It is drawn again only when its properties change, so the callbacks must stay the same. */
export const EventRowView = memo(function EventRowView(props: Props) {
  const { row, index, top, height, gone, changed, selected, cursor, namespace, onOpen, picked, onPick, told } = props
  const place = { transform: `translateY(${top}px)`, height }
  if (!row) {
    return (
      <div className={`${css.row} ${css.pending}`} role="row" aria-rowindex={index + 1} style={place}>
        <span role="gridcell" />
      </div>
    )
  }
  const mark = markOf(row.status)
  const silenced = (row.silenced ?? []).length > 0
  return (
    <div
      className={css.row}
      role="row"
      id={`row-${index}`}
      aria-rowindex={index + 1}
      aria-selected={selected}
      data-entity={row.entity}
      data-check={row.check}
      data-mark={mark}
      data-silenced={silenced}
      data-gone={gone}
      data-cursor={cursor}
      data-flash={changed !== undefined && performance.now() - changed < flashFor}
      style={place}
      onClick={() => onOpen(keyOf(row), index)}
    >
      {onPick && (
        <span role="gridcell" className={css.pick} onClick={(event) => event.stopPropagation()}>
          <PickBox label={text.table.pick(`${row.entity} ${row.check}`)} picked={picked ?? false} onPick={() => onPick(keyOf(row))} />
        </span>
      )}
      <span role="gridcell" className={css.status}>
        <StatusMark mark={mark} />
        <span className={css.word}>{gone ? text.gone : text.status(row.status)}</span>
        {silenced && row.status !== 0 && (
          <span className={css.hushed} title={text.silencedBy(row.silenced ?? [])}>
            <Icon name="muted" size={13} />
            <span className="visually-hidden">{text.silenced}</span>
          </span>
        )}
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
      {told === undefined ? (
        <span role="gridcell" className={css.history}>
          <HistoryBars statuses={row.history ?? []} />
        </span>
      ) : (
        <span role="gridcell" className={css.told}>
          <Told answer={told ?? undefined} />
        </span>
      )}
      <span role="gridcell" className={css.owner}>
        <Owner row={row} />
      </span>
      <span role="gridcell" className={css.since}>
        <Since row={row} />
      </span>
    </div>
  )
})

/** Who has the incident, or that it is silenced. */
function Owner({ row }: { row: EventRow }) {
  if (row.acknowledged_by) {
    return (
      <span title={text.list.acknowledgedBy(row.acknowledged_by)}>
        <Icon name="access" size={14} /> {row.acknowledged_by}
      </span>
    )
  }
  const silences = row.silenced ?? []
  if (silences.length === 0) return null
  return (
    <span title={text.silencedBy(silences)}>
      <Icon name="muted" size={14} /> {text.silenced}
    </span>
  )
}

/** How long the check has been as it is. */
function Since({ row }: { row: EventRow }) {
  const now = useNow() / 1000
  if (row.since > 0) return <Age at={row.since} />
  const least = row.last_ok > 0 && row.status !== 0 ? now - row.last_ok : 0
  return <span>{least > 0 ? text.duration(least) : '–'}</span>
}

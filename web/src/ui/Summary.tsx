import type { CSSProperties } from 'react'
import type { Feed } from '../live/feed'
import { groups, type Group } from '../store/row'
import { text } from '../text'
import { Icon, StatusMark } from './icons'
import css from './Summary.module.css'

interface Props {
  feed: Feed
  selected: readonly Group[]
  onToggle: (group: Group) => void
}

/** The number that matters, the shares of the fleet, and a tile for each group that filters the list. */
export function Summary({ feed, selected, onToggle }: Props) {
  const { store } = feed
  const { counts, incidents, size } = store
  const known = store.synced || size > 0
  return (
    <section className={css.summary} aria-label={text.summary}>
      <div className={css.headline} data-clear={known && incidents === 0 && size > 0}>
        {known && incidents === 0 && size > 0 ? (
          <h1>{text.allClear}</h1>
        ) : (
          <h1>
            <span className={css.big}>{known ? text.compact(incidents) : '–'}</span> {text.incidents(incidents)}
          </h1>
        )}
        <p>{known ? text.total(size) : ' '}</p>
        <div className={css.bar} aria-hidden="true">
          {groups.map((group) => (
            <span key={group} data-group={group} style={{ '--n': counts[group] } as CSSProperties} />
          ))}
        </div>
      </div>
      <div className={css.tiles}>
        {groups.map((group) => (
          <button
            key={group}
            className={css.tile}
            data-group={group}
            data-none={counts[group] === 0}
            aria-pressed={selected.includes(group)}
            title={text.groupHelp[group]}
            onClick={() => onToggle(group)}
          >
            <span className={css.count}>{known ? text.compact(counts[group]) : '–'}</span>
            <span className={css.name}>
              {group === 'silenced' ? <Icon name="muted" size={14} /> : <StatusMark mark={group} size={13} />}
              {text.group[group]}
            </span>
          </button>
        ))}
      </div>
    </section>
  )
}

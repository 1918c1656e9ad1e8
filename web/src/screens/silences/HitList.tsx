import { Link } from '@tanstack/react-router'
import type { SilencePreview } from '../../api/types'
import { text } from '../../text'
import { silences as t } from '../../text/silences'
import { markOf, StatusMark } from '../../widgets/icons'
import css from './SilencesScreen.module.css'

/** Events that a silence hits, each a link to its detail. */
export function HitList({ namespace, events, told }: { namespace: string; events: NonNullable<SilencePreview['listed']>; told?: boolean }) {
  return (
    <ul className={css.hitlist}>
      {events.map(({ entity, check, status, silenced }) => (
        <li key={`${entity}/${check}`}>
          <StatusMark mark={markOf(status)} />
          <span className="visually-hidden">{text.status(status)}</span>
          <Link to="/events" search={{ ns: namespace, event: `${namespace}/${entity}/${check}` }}>
            {check} · {entity}
          </Link>
          {told && (silenced ?? []).length > 0 && <small>{t.form.already}</small>}
        </li>
      ))}
    </ul>
  )
}

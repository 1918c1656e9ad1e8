import { Link } from '@tanstack/react-router'
import { usePreferences } from '../../app/preferences'
import { timeOfDay } from '../../app/time'
import type { Explanation } from '../../api/types'
import { text } from '../../text'
import { Icon } from '../../widgets/icons'
import { useExplanation } from './use-told'
import css from './Verdict.module.css'

interface Props {
  namespace: string
  entity: string
  check: string
  /** Changes with each result of the event. */
  revision: number | undefined
}

/** Whether somebody was told of an event, and why not, for each route. "Why?" leads to all of it. */
export function Verdict({ namespace, entity, check, revision }: Props) {
  const { time } = usePreferences()
  const { data } = useExplanation(namespace, entity, check, revision)
  if (!data) return null // without the right to see traces, or before the first answer, the event says the rest
  const told = text.told.title[data.told]
  return (
    <section className={css.strip} data-told={data.told} aria-label={text.told.label}>
      <p className={css.head}>
        <Icon name={data.told === 'yes' ? 'bell' : data.told === 'no' ? 'muted' : 'now'} size={14} />
        <b>{told}</b>
        <Link to="/trace" search={(all) => ({ ns: all.ns, event: `${namespace}/${entity}/${check}` })}>
          {text.told.why}
        </Link>
      </p>
      <Routes routes={data.routes ?? []} zone={time} />
    </section>
  )
}

/** Routes that are shown at most; the trace has all. */
const most = 4

function Routes({ routes, zone }: { routes: NonNullable<Explanation['routes']>; zone: 'local' | 'utc' }) {
  if (routes.length === 0) return null
  return (
    <ul className={css.routes}>
      {routes.slice(0, most).map(({ handler = '', pipeline = '', workflow = '', verdict, alerted, time = 0, reason }, i) => (
        <li key={i} data-alerted={alerted}>
          <Icon name={alerted ? 'check' : 'close'} size={12} />
          <span>
            <b>
              {handler ||
                [pipeline, workflow].filter((one) => one !== '').join('/') ||
                (verdict === 'silenced' ? text.told.silenced : text.told.noHandler)}
            </b>{' '}
            {time > 0 && <time dateTime={new Date(time).toISOString()}>{timeOfDay(time / 1000, zone)}</time>} {reason}
          </span>
        </li>
      ))}
      {routes.length > most && <li>{text.told.more(routes.length - most)}</li>}
    </ul>
  )
}

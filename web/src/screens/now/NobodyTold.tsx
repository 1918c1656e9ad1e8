import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { unwrap } from '../../api/client'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { text } from '../../text'
import css from './NowScreen.module.css'

/** Incidents that are shown at most; the heading has the number of all. */
const shown = 6

/** The open incidents that nobody was told about, the newest first. */
export function NobodyTold({ namespace, open }: { namespace: string; open: number }) {
  const { api } = useApp()
  const untold = useQuery({
    queryKey: ['untold', namespace],
    enabled: open > 0,
    refetchInterval: 5000, // the server looks no more often
    placeholderData: keepPreviousData,
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/events/untold', { params: { path: { namespace } } })),
  })
  const { untold: n = 0, looked = 0, open: all = 0, events } = untold.data ?? {}
  if (open === 0 || n === 0) return null
  const title = text.now.untold(n, looked < all)
  return (
    <section className={css.panel} data-alarm="true" aria-label={title}>
      <h2>{title}</h2>
      <ul className={css.groups}>
        {(events ?? []).slice(0, shown).map(({ namespace: ns, entity, check, reason }) => (
          <li key={`${ns}/${entity}/${check}`}>
            <Link
              to="/events"
              search={{
                ...(namespace === everywhere ? {} : { ns: namespace }),
                status: 'open',
                sort: 'since',
                event: `${ns}/${entity}/${check}`,
              }}
              className={css.group}
              title={reason}
            >
              <span className={css.name}>
                {entity} · {check}
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </section>
  )
}

import { useQuery } from '@tanstack/react-query'
import { unwrap } from '../../api/client'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { clock } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import css from './NowScreen.module.css'

/** Who is on call now, for each rota. */
export function OnCallNow({ namespace }: { namespace: string }) {
  const { api } = useApp()
  const { time } = usePreferences()
  const rotas = useQuery({
    queryKey: definitionsKey('rotas', 'now', namespace),
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/oncall', { params: { path: { namespace } } })),
    refetchInterval: 60_000,
    retry: false,
  })
  if (!rotas.data || rotas.data.length === 0) return null // no rota, or no right to see them: the screen is about incidents
  return (
    <section className={css.panel} aria-label={text.now.onCall}>
      <h2>{text.now.onCall}</h2>
      <ul className={css.oncall}>
        {rotas.data.map(({ rota, from, shifts, problem }) => {
          const shift = shifts?.find(({ begin }) => begin <= from) // by the clock of the backend
          return (
            <li key={rota} title={problem}>
              <span>{rota}</span>
              <span>
                <b>{shift?.contact ?? text.now.noOne}</b> {shift && <small>{text.now.until(clock(shift.until, time, false))}</small>}
              </span>
            </li>
          )
        })}
      </ul>
    </section>
  )
}

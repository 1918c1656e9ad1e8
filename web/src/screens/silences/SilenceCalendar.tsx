import { useMediaQuery } from '@mantine/hooks'
import type { ReactNode } from 'react'
import type { PreviewSpan, Silenced } from '../../api/types'
import { usePreferences } from '../../app/preferences'
import { dayText, place, shortDay } from '../../app/days'
import { clock, useNow } from '../../app/time'
import { silences as t } from '../../text/silences'
import { DataTable, type Column } from '../../widgets/DataTable'
import { WeekBar, useDays } from '../../widgets/WeekBar'
import { keyOf, kindOf, recurs } from './model'
import { What } from './What'
import css from './SilencesScreen.module.css'
import { usePreview } from './use-silences'

/** Days that the calendar shows at once, and on a narrow window. */
const wide = 14
const narrow = 7

interface Props {
  silences: readonly Silenced[]
  /** Its first day, as in the address. */
  week: string | undefined
  onWeek: (week: string | undefined) => void
  selected: string | undefined
  onOpen: (key: string | undefined) => void
  everywhere: boolean
  empty: ReactNode
}

/** Two weeks, with bars at the times at which silences apply. */
export function SilenceCalendar({ silences, week, onWeek, selected, onOpen, everywhere, empty }: Props) {
  const { time } = usePreferences()
  const utc = time === 'utc'
  const shown = useMediaQuery('(max-width: 700px)', false, { getInitialValueInEffect: false }) ? narrow : wide
  const { begins, today } = useDays(week, shown)
  const from = begins[0] ?? 0
  const to = begins[shown] ?? 0
  const rows = silences.filter((one) => place({ begins: one.begin ?? 0, ends: one.expire_at ?? 0 }, from, to) !== undefined)
  const columns: Column<Silenced>[] = [
    { id: 'what', title: t.columns.what, width: 'minmax(120px, 1fr)', cell: (one) => <What silence={one} namespace={everywhere} /> },
    {
      id: 'times',
      title: t.calendar.strip(shortDay(from, utc), shortDay(begins[shown - 1] ?? 0, utc)),
      head: <Days begins={begins} today={today} utc={utc} />,
      width: 'minmax(0, 3.2fr)',
      cell: (one) => <Strip silence={one} begins={begins} />,
    },
  ]
  return (
    <>
      <div className={css.week}>
        <WeekBar week={week} shown={shown} onWeek={onWeek} />
      </div>
      <DataTable label={t.title} columns={columns} rows={rows} keyOf={keyOf} selected={selected} onOpen={onOpen} empty={empty} />
    </>
  )
}

function Days({ begins, today, utc }: { begins: readonly number[]; today: string; utc: boolean }) {
  const format = new Intl.DateTimeFormat('en-GB', {
    ...(begins.length > narrow + 1 ? { weekday: 'narrow' } : {}),
    day: 'numeric',
    ...(utc ? { timeZone: 'UTC' } : {}),
  })
  return (
    <span className={css.days}>
      {begins.slice(0, -1).map((at) => (
        <span key={at} data-today={dayText(new Date(at * 1000), utc) === today}>
          {format.format(at * 1000)}
        </span>
      ))}
    </span>
  )
}

function Strip({ silence, begins }: { silence: Silenced; begins: readonly number[] }) {
  const { time } = usePreferences()
  const now = useNow() / 1000
  const from = begins[0] ?? 0
  const to = begins.at(-1) ?? 0
  const asked = usePreview(recurs(silence) ? silence : undefined, { since: from, until: to })
  const spans: readonly PreviewSpan[] = recurs(silence)
    ? (asked.data?.spans ?? [])
    : [{ begins: silence.begin ?? 0, ends: silence.expire_at ?? 0 }]
  const bars = spans.flatMap((one) => {
    const bar = place(one, from, to)
    return bar ? [{ one, bar }] : []
  })
  const words = ({ begins: begin, ends }: PreviewSpan) =>
    t.calendar.bar(clock(begin, time, false), ends === 0 ? t.calendar.open : clock(ends, time, false))
  const present = place({ begins: Math.floor(now), ends: Math.floor(now) + 1 }, from, to)
  return (
    <span className={css.strip}>
      {begins.slice(0, -1).map((at) => (
        <i key={at} style={{ left: percent((at - from) / (to - from)) }} />
      ))}
      {present && <i data-now="true" title={t.calendar.now} style={{ left: percent(present.left) }} />}
      {bars.map(({ one, bar }) => (
        <b
          key={one.begins}
          data-kind={kindOf(silence, now)}
          data-before={bar.before}
          data-after={bar.after}
          title={words(one)}
          style={{ left: percent(bar.left), width: percent(bar.width) }}
        />
      ))}
      <span className="visually-hidden">{bars.map(({ one }) => words(one)).join('; ')}</span>
      {bars.length === 0 && !asked.isLoading && <em>{asked.error?.message ?? t.calendar.none}</em>}
    </span>
  )
}

const percent = (part: number) => `${100 * part}%`

import { ActionIcon, Button } from '@mantine/core'
import { useMemo } from 'react'
import { dayOf, days, dayText, later, monday, shortDay } from '../app/days'
import { usePreferences } from '../app/preferences'
import { useNow } from '../app/time'
import { text } from '../text'
import { Icon } from './icons'

interface Props {
  /** The first day, as in the address; the present week without it. */
  week: string | undefined
  /** How many days are shown. */
  shown: number
  onWeek: (week: string | undefined) => void
}

/** The begins of the shown days and the end of the last one, in Unix seconds, and the present day. */
export function useDays(week: string | undefined, shown: number): { begins: readonly number[]; today: string; utc: boolean } {
  const utc = usePreferences().time === 'utc'
  const today = dayText(new Date(useNow()), utc)
  const begins = useMemo(
    () => days(dayOf(week, utc) ?? monday(dayOf(today, utc) ?? new Date(), utc), shown, utc),
    [week, today, shown, utc],
  )
  return { begins, today, utc }
}

/** Chooses the days that are shown. */
export function WeekBar({ week, shown, onWeek }: Props) {
  const { begins, utc } = useDays(week, shown)
  const first = begins[0] ?? 0
  const step = (by: number) => onWeek(dayText(later(new Date(first * 1000), by, utc), utc))
  const t = text.weeks
  return (
    <>
      <ActionIcon variant="default" aria-label={t.earlier(shown)} title={t.earlier(shown)} onClick={() => step(-shown)}>
        <Icon name="left" />
      </ActionIcon>
      <ActionIcon variant="default" aria-label={t.later(shown)} title={t.later(shown)} onClick={() => step(shown)}>
        <Icon name="right" />
      </ActionIcon>
      <Button size="compact-sm" variant="default" onClick={() => onWeek(undefined)}>
        {t.today}
      </Button>
      <b>{t.range(shortDay(first, utc), shortDay(begins[shown - 1] ?? 0, utc))}</b>
    </>
  )
}

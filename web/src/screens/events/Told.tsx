import { usePreferences } from '../../app/preferences'
import { clock, timeOfDay } from '../../app/time'
import type { Explained } from '../../api/types'
import { text } from '../../text'
import { Icon, type IconName } from '../../widgets/icons'
import css from './Told.module.css'

const icons: Record<Explained['told'], IconName> = { yes: 'bell', waiting: 'refresh', no: 'muted', nothing: 'check', unknown: 'more' }

/** Whether somebody was told of an event, in a few words; the title says the rest. */
export function Told({ answer }: { answer: Explained | undefined }) {
  const { time } = usePreferences()
  if (!answer) return <span className={css.told}>–</span>
  const { told, by, first_told: first = 0, reason = '' } = answer
  const names = (by ?? []).map(({ handler, contacts }) => [handler, ...(contacts ?? [])].join(' → '))
  const title = [first > 0 ? clock(first / 1000, time) : '', names.join(', '), reason].filter((part) => part !== '').join(' · ')
  return (
    <span className={css.told} data-told={told} title={title}>
      <Icon name={icons[told]} size={14} />
      <span>
        {told === 'yes'
          ? text.told.by(
              (by ?? []).map(({ handler }) => handler),
              first > 0 ? timeOfDay(first / 1000, time) : '',
            )
          : text.told.words[told]}
      </span>
    </span>
  )
}

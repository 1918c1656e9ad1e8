import { Select } from '@mantine/core'
import { text } from '../../text'

const morning = 'morning'

interface Props {
  label: string
  value: string
  none: string
  /** Further choices, of which secondsOf knows nothing. */
  more?: readonly { value: string; label: string }[]
  onChange: (value: string) => void
}

/** Chooses how long a silence or an acknowledgement lasts; "0" is without an end. */
export function Length(props: Props) {
  return (
    <Select
      label={props.label}
      value={props.value}
      allowDeselect={false}
      comboboxProps={{ withinPortal: false }}
      data={[
        { value: '3600', label: text.act.lengths.hour },
        { value: '14400', label: text.act.lengths.fourHours },
        { value: morning, label: text.act.lengths.morning },
        { value: '86400', label: text.act.lengths.day },
        { value: '0', label: props.none },
        ...(props.more ?? []),
      ]}
      onChange={(value) => props.onChange(value ?? '0')}
    />
  )
}

/** Seconds of a choice, 0 for none. The next morning is at 08:00 of the browser's zone. */
export function secondsOf(choice: string, now = new Date()): number {
  if (choice !== morning) return Number(choice)
  const at = new Date(now)
  at.setHours(8, 0, 0, 0)
  if (at <= now) at.setDate(at.getDate() + 1)
  return Math.ceil((at.getTime() - now.getTime()) / 1000)
}

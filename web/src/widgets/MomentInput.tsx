import { TextInput } from '@mantine/core'
import { usePreferences } from '../app/preferences'
import { fieldOf, unixOf } from '../app/time'

interface Props {
  label: string
  /** Unix seconds; undefined for none. */
  value: number | undefined
  onChange: (at: number | undefined) => void
  description?: string
  disabled?: boolean
}

/** Takes a moment in the user's zone or in UTC. */
export function MomentInput({ label, value, onChange, description, disabled = false }: Props) {
  const { time } = usePreferences()
  return (
    <TextInput
      type="datetime-local"
      size="xs"
      label={time === 'utc' ? `${label} (UTC)` : label}
      description={description}
      disabled={disabled}
      value={value === undefined ? '' : fieldOf(value, time)}
      onChange={(event) => onChange(unixOf(event.currentTarget.value, time))}
    />
  )
}

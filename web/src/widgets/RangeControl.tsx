import { ActionIcon, Button, Group, SegmentedControl } from '@mantine/core'
import { usePreferences } from '../app/preferences'
import { moved, parseRange } from '../app/range'
import { clock } from '../app/time'
import { text } from '../text'
import { Icon } from './icons'

interface Props {
  /** As in the address; undefined is the initial one. */
  value: string | undefined
  initial: string
  onChange: (value: string | undefined) => void
}

const t = text.range

/** Chooses the time of a view: a length until now, or what was selected in a plot, which can be moved. */
export function RangeControl({ value, initial, onChange }: Props) {
  const { time } = usePreferences()
  const range = parseRange(value) ?? parseRange(initial)
  if (!range) return null
  const change = (next: string) => onChange(next === initial ? undefined : next)
  const move = (how: 'earlier' | 'later' | 'closer') => change(moved(range, how, Date.now() / 1000))
  const chosen = 'last' in range ? (value ?? initial) : ''
  return (
    <Group gap={6} wrap="wrap">
      {'from' in range && (
        <Button
          size="compact-xs"
          variant="light"
          rightSection={<Icon name="close" size={12} />}
          title={t.reset}
          aria-label={`${t.reset}: ${clock(range.from, time)} – ${clock(range.until, time)}`}
          onClick={() => onChange(undefined)}
        >
          {clock(range.from, time, false)} – {clock(range.until, time, false)}
        </Button>
      )}
      <SegmentedControl size="xs" aria-label={t.label} value={chosen} data={t.lengths} onChange={change} />
      <Group gap={2} wrap="nowrap">
        {(['earlier', 'later', 'closer'] as const).map((how) => (
          <ActionIcon
            key={how}
            variant="default"
            aria-label={t[how]}
            title={t[how]}
            disabled={how === 'later' && 'last' in range}
            onClick={() => move(how)}
          >
            <Icon name={icons[how]} size={14} />
          </ActionIcon>
        ))}
      </Group>
    </Group>
  )
}

const icons = { earlier: 'left', later: 'right', closer: 'closer' } as const

import { Alert, Badge, Button, Checkbox, Group, SegmentedControl, Select, Stack, TextInput } from '@mantine/core'
import { useState } from 'react'
import { CopyButton } from '../../widgets/CopyButton'
import { byNumber, byText, DataTable } from '../../widgets/DataTable'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Output, Pairs, Section } from '../../widgets/Facts'
import { HistoryBars } from '../../widgets/HistoryBars'
import { Icon, iconNames, StatusMark } from '../../widgets/icons'
import { Plot } from '../../widgets/Plot'
import { Panel, Screen } from '../../widgets/Screen'
import { done, failed } from '../../widgets/toast'
import css from './StyleguideScreen.module.css'

const colours = [
  'bg',
  'surface',
  'raised',
  'hover',
  'selected',
  'line',
  'line-strong',
  'text',
  'muted',
  'accent',
  'on-accent',
  'focus',
  'ok',
  'warning',
  'critical',
  'unknown',
  'silenced',
  'ok-soft',
  'warning-soft',
  'critical-soft',
  'unknown-soft',
  'silenced-soft',
  'series-1',
  'series-2',
  'series-3',
  'series-4',
  'series-5',
  'series-6',
  'series-7',
  'series-8',
]
const sizes = [12, 13, 14, 16, 20]
const spaces = [4, 8, 12, 16, 24]
const marks = ['critical', 'warning', 'unknown', 'ok'] as const

/** The tokens and parts that screens are made of. It is there in development only, so its words are not in the catalogue. */
export function StyleguideScreen() {
  const [sort, setSort] = useState<string>()
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set())
  const rows = marks.map((mark, i) => ({ mark, name: `host-${10 - i}`, n: i * 7 }))
  const times = Array.from({ length: 120 }, (_, i) => 1_700_000_000 + i * 60)
  return (
    <Screen title="Styleguide">
      <Panel title="Colours, by what they mean (style/tokens.css)">
        <ul className={css.colours}>
          {colours.map((name) => (
            <li key={name}>
              <i style={{ background: `var(--${name})` }} />
              <code>--{name}</code>
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Type and space (app/theme.ts)">
        {sizes.map((size) => (
          <p key={size} style={{ fontSize: size }}>
            {size} px: what is broken, who has it, did somebody get told?
          </p>
        ))}
        <Group mt="md" align="end">
          {spaces.map((space) => (
            <span key={space} className={css.space} style={{ width: space, height: space }} title={`${space} px`} />
          ))}
        </Group>
      </Panel>
      <Panel title="States, told by shape and word as well as colour">
        <Group>
          {marks.map((mark) => (
            <Group key={mark} gap={6}>
              <StatusMark mark={mark} /> {mark}
            </Group>
          ))}
          <HistoryBars statuses={[0, 0, 1, 2, 2, 3, 0, 0, 0, 1, 0]} />
        </Group>
      </Panel>
      <Panel title="Icons">
        <Group>
          {iconNames.map((name) => (
            <span key={name} className={css.icon}>
              <Icon name={name} size={18} />
              <small>{name}</small>
            </span>
          ))}
        </Group>
      </Panel>
      <Panel title="Controls">
        <Group>
          <Button>Primary</Button>
          <Button variant="default">Default</Button>
          <Button color="red">Danger</Button>
          <Button disabled>Disabled</Button>
          <Button loading>Loading</Button>
          <CopyButton value={() => 'copied'} />
          <SegmentedControl aria-label="Choice" data={['One', 'Two']} />
          <Checkbox label="Checkbox" />
          <Badge>Badge</Badge>
        </Group>
        <Group mt="md" align="end">
          <TextInput label="Text" />
          <Select label="Select" data={['a', 'b']} />
          <Button variant="default" onClick={() => done('It is done.', () => Promise.resolve())}>
            Toast with undo
          </Button>
          <Button variant="default" onClick={() => failed('It failed', new Error('the server said why'))}>
            Toast of a failure
          </Button>
        </Group>
        <Stack mt="md">
          <Alert color="red">The server refused it, and says why.</Alert>
          <Alert color="yellow">The server warns of something.</Alert>
        </Stack>
      </Panel>
      <Panel title="Table">
        <div className={css.table}>
          <DataTable
            label="Hosts"
            rows={rows}
            keyOf={({ name }) => name}
            columns={[
              { id: 'mark', title: 'State', width: '140px', cell: ({ mark }) => <StatusMark mark={mark} /> },
              { id: 'name', title: 'Host', cell: ({ name }) => name, order: byText(({ name }) => name) },
              { id: 'n', title: 'Results', width: '100px', end: true, cell: ({ n }) => n, order: byNumber(({ n }) => n) },
            ]}
            sort={sort}
            onSort={setSort}
            picked={picked}
            onPick={setPicked}
            empty={<EmptyState title="Nothing here" />}
          />
        </div>
      </Panel>
      <Panel title="Plot">
        <Plot
          label="Two series"
          times={times}
          series={[
            { label: 'sine', values: times.map((_, i) => Math.sin(i / 9)) },
            { label: 'cosine', values: times.map((_, i) => (i % 40 === 0 ? null : Math.cos(i / 9))) },
          ]}
        />
      </Panel>
      <Panel title="Detail">
        <Section title="Facts">
          <Facts
            facts={[
              ['Name', 'value'],
              ['Another', '42'],
              ['Left out', undefined],
            ]}
          />
        </Section>
        <Pairs title="Labels" sources={[{ region: 'eu', rack: 'r7' }]} />
        <Section title="Output">
          <Output>{'DISK CRITICAL: 97% used\n/var 97%'}</Output>
        </Section>
      </Panel>
      <Panel title="Nothing to show">
        <EmptyState title="Nothing matches" help="It says why there is nothing, and what to do.">
          <Button>Do it</Button>
        </EmptyState>
      </Panel>
    </Screen>
  )
}

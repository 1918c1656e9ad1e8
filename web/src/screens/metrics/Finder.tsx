import { Autocomplete, Button, Group, Pill, SegmentedControl, Select, Stack, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { findNodes, findTags, findValues } from '../../api/graphite'
import { useApp } from '../../app/context'
import { metricsText as t } from '../../text/metrics'
import { EmptyState } from '../../widgets/EmptyState'
import { Icon } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import css from './MetricsScreen.module.css'
import { byTags } from './target'

interface Props {
  by: string
  onBy: (by: string) => void
  onAdd: (target: string) => void
}

/** Finds metrics by the tree of their names, or by their tags. */
export function Finder({ by, onBy, onAdd }: Props) {
  return (
    <Stack gap="sm">
      <SegmentedControl size="xs" aria-label={t.find} value={by} data={t.by} onChange={onBy} />
      {by === 'tags' ? (
        <Tags onAdd={onAdd} />
      ) : (
        <div className={css.tree} role="group" aria-label={t.tree}>
          <Level under="" onAdd={onAdd} />
        </div>
      )}
    </Stack>
  )
}

/** Names of a level that are shown; there may be 40,000. */
const mostNames = 200

function Level({ under, onAdd }: { under: string; onAdd: (target: string) => void }) {
  const { session } = useApp()
  const nodes = useQuery({
    queryKey: ['metric-nodes', under],
    queryFn: () => findNodes(session.fetch, under === '' ? '*' : `${under}.*`),
    staleTime: 30_000,
  })
  return (
    <QueryView query={nodes} rows={2}>
      {(found) =>
        found.length === 0 && under === '' ? (
          <EmptyState title={t.noNames} help={t.noNamesHelp} />
        ) : (
          <ul>
            {found.slice(0, mostNames).map((node) =>
              node.expandable ? (
                <Branch key={`${node.id}.`} id={node.id} text={node.text} onAdd={onAdd} />
              ) : (
                <li key={node.id}>
                  <button type="button" className={css.leaf} aria-label={t.addLeaf(node.id)} onClick={() => onAdd(node.id)}>
                    {node.text}
                  </button>
                </li>
              ),
            )}
            {found.length > mostNames && (
              <li>
                <Text size="xs" c="dimmed">
                  {t.more(found.length - mostNames)}
                </Text>
              </li>
            )}
          </ul>
        )
      }
    </QueryView>
  )
}

function Branch({ id, text, onAdd }: { id: string; text: string; onAdd: (target: string) => void }) {
  const [open, setOpen] = useState(false)
  return (
    <li>
      <span className={css.branch}>
        <button type="button" aria-expanded={open} aria-label={open ? t.close(id) : t.open(id)} onClick={() => setOpen(!open)}>
          <Icon name={open ? 'down' : 'right'} size={12} /> {text}
        </button>
        {open && (
          <button type="button" className={css.all} aria-label={t.addBelow(id)} title={t.addBelow(id)} onClick={() => onAdd(`${id}.*`)}>
            {t.all}
          </button>
        )}
      </span>
      {open && <Level under={id} onAdd={onAdd} />}
    </li>
  )
}

type Pair = readonly [tag: string, value: string]

function Tags({ onAdd }: { onAdd: (target: string) => void }) {
  const { session } = useApp()
  const [pairs, setPairs] = useState<readonly Pair[]>([])
  const [tag, setTag] = useState<string | null>(null)
  const [value, setValue] = useState('')
  const [search, setSearch] = useState('')
  const [askedTag] = useDebouncedValue(search === tag ? '' : search, 200)
  const [askedValue] = useDebouncedValue(value, 200)
  const expressions = pairs.map(([name, one]) => `${name}=${one}`)
  const tags = useQuery({ queryKey: ['metric-tags', askedTag, expressions], queryFn: () => findTags(session.fetch, askedTag, expressions) })
  const values = useQuery({
    queryKey: ['metric-values', tag, askedValue, expressions],
    enabled: tag !== null,
    queryFn: () => findValues(session.fetch, tag ?? '', askedValue, expressions),
  })
  const complete = tag !== null && value !== ''
  const all: readonly Pair[] = complete ? [...pairs, [tag, value]] : pairs
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        if (all.length === 0) return
        onAdd(byTags(all))
        setPairs(all)
        setTag(null)
        setValue('')
      }}
    >
      <Stack gap="sm">
        {pairs.length > 0 && (
          <Group gap={4}>
            {pairs.map((pair, i) => (
              <Pill
                key={i}
                withRemoveButton
                removeButtonProps={{ 'aria-label': t.removeTag(pair.join('=')), 'aria-hidden': false, tabIndex: 0 }}
                onRemove={() => setPairs(pairs.filter((_, place) => place !== i))}
              >
                {pair.join('=')}
              </Pill>
            ))}
          </Group>
        )}
        <Select
          size="xs"
          label={t.tag}
          value={tag}
          data={[...new Set([...(tag === null ? [] : [tag]), ...(tags.data ?? [])])]}
          searchable
          onSearchChange={setSearch}
          onChange={(next) => {
            setTag(next)
            setValue('')
          }}
        />
        <Autocomplete
          size="xs"
          label={t.value}
          disabled={tag === null}
          value={value}
          data={values.data ?? []}
          filter={({ options }) => options}
          onChange={setValue}
        />
        {(tags.error ?? values.error) && (
          <Text size="sm" c="red" role="alert">
            {(tags.error ?? values.error)?.message}
          </Text>
        )}
        <Button size="xs" type="submit" variant="default" disabled={all.length === 0}>
          {t.addTags}
        </Button>
      </Stack>
    </form>
  )
}

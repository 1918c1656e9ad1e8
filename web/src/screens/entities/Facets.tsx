import { Button, Select } from '@mantine/core'
import { useState, type ReactNode } from 'react'
import type { EntityCounts } from '../../api/types'
import type { EntityList } from '../../live/entity-list'
import { text } from '../../text'
import { entitiesText as t } from '../../text/entities'
import css from './EntitiesScreen.module.css'
import { AgentWord, WorstWord } from './marks'
import { agents, classes } from './present'
import { isChosen, toggled, type Change, type EntitiesSearch } from './search'

interface Props {
  list: EntityList
  search: EntitiesSearch
  /** Keys of labels that could be counted, too. */
  labels: readonly string[]
  onChange: (change: Change) => void
}

/** Values that are shown of a key until all are wanted. */
const few = 6

/** What the entities of the list have in common, each a filter. */
export function Facets({ list, search, labels, onChange }: Props) {
  const filtered = search.q !== undefined || search.agent !== undefined || search.worst !== undefined || search.backend !== undefined
  const rest = labels.filter((key) => !list.facets.some((facet) => facet.key === `label:${key}`))
  const { counts } = list
  const fixed = (by: 'agent' | 'worst', names: readonly string[], n: (name: string) => number, word: (name: string) => ReactNode) => (
    <Facet
      title={t.facet[by]}
      values={names
        .filter((name) => n(name) > 0 || isChosen(search, by, name))
        .map((name) => ({ value: name, n: n(name), word: word(name) }))}
      total={0}
      by={by}
      search={search}
      onChange={onChange}
    />
  )
  return (
    <div className={css.facets}>
      {filtered && (
        <Button
          size="compact-sm"
          variant="subtle"
          onClick={() => onChange({ q: undefined, agent: undefined, worst: undefined, backend: undefined })}
        >
          {t.clearFilters}
        </Button>
      )}
      {counts.worst &&
        fixed(
          'worst',
          classes,
          (name) => counts.worst?.[name as keyof NonNullable<EntityCounts['worst']>] ?? 0,
          (name) => <WorstWord worst={name} />,
        )}
      {fixed(
        'agent',
        agents,
        (name) => counts[name as 'connected'],
        (name) => (
          <AgentWord agent={name} />
        ),
      )}
      {list.facets.map(({ key, total, values }) => (
        <Facet
          key={key}
          title={titleOf(key)}
          values={(values ?? []).map(({ value, counts: of }) => ({ value, n: of.total, word: value === '' ? t.without : value }))}
          total={total}
          by={key}
          search={search}
          onChange={onChange}
        />
      ))}
      {rest.length > 0 && (
        <Select
          size="xs"
          aria-label={t.otherLabel}
          placeholder={t.otherLabel}
          data={rest}
          value={null}
          searchable
          onChange={(key) => onChange({ facet: key ?? undefined })}
        />
      )}
    </div>
  )
}

/** What a key of groups is called. */
export const titleOf = (key: string): string =>
  key.startsWith('label:') ? t.label(key.slice('label:'.length)) : (t.groups[key as keyof typeof t.groups] ?? key)

interface FacetProps extends Pick<Props, 'search' | 'onChange'> {
  title: string
  values: readonly { value: string; n: number; word: ReactNode }[]
  /** How many values there are. */
  total: number
  by: string
}

function Facet({ title, values, total, by, search, onChange }: FacetProps) {
  const [all, setAll] = useState(false)
  if (values.length === 0 || (values.length === 1 && values[0]?.value === '')) return null
  const shown = all ? values : values.slice(0, few)
  const more = Math.max(total, values.length) - few
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <ul>
        {shown.map(({ value, n, word }) => {
          const chosen = isChosen(search, by, value)
          const change = toggled(search, by, value)
          return (
            <li key={value}>
              <button type="button" aria-pressed={chosen} disabled={change === undefined} onClick={() => change && onChange(change)}>
                <span>{word}</span>
                <small>{text.number(n)}</small>
              </button>
            </li>
          )
        })}
      </ul>
      {more > 0 && (
        <Button size="compact-sm" variant="subtle" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? t.fewer : t.moreValues(more)}
        </Button>
      )}
    </section>
  )
}

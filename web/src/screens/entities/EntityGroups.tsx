import { Anchor, Table } from '@mantine/core'
import type { EntityList } from '../../live/entity-list'
import { text } from '../../text'
import { entitiesText as t } from '../../text/entities'
import css from './EntitiesScreen.module.css'
import { titleOf } from './Facets'
import { classes, newerFirst, skewOf } from './present'

interface Props {
  list: EntityList
  by: string
  onOpen: (value: string) => void
  /** Whether a group can be searched for. */
  can: (value: string) => boolean
}

/** The entities counted by group; by version also how far the agents are apart. */
export function EntityGroups({ list, by, onOpen, can }: Props) {
  const groups = by === 'version' ? [...list.groups].sort(newerFirst) : list.groups
  const skew = by === 'version' ? skewOf(list.groups) : undefined
  const total = Math.max(1, list.counts.total)
  const seen = list.counts.worst !== undefined && list.counts.worst !== null
  return (
    <>
      {skew && <p className={css.skew}>{t.skew(skew.versions, skew.newest, skew.share)}</p>}
      <div className={css.groups} tabIndex={0} role="region" aria-label={titleOf(by)}>
        <Table stickyHeader verticalSpacing={6} highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{titleOf(by)}</Table.Th>
              <Table.Th ta="right">{t.title}</Table.Th>
              <Table.Th>{t.share}</Table.Th>
              {(['connected', 'late', 'gone'] as const).map((agent) => (
                <Table.Th key={agent} ta="right">
                  {t.agent[agent]}
                </Table.Th>
              ))}
              {seen &&
                classes.slice(0, 5).map((worst) => (
                  <Table.Th key={worst} ta="right">
                    {t.worst[worst]}
                  </Table.Th>
                ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {groups.map(({ value, counts }) => (
              <Table.Tr key={value}>
                <Table.Td>
                  {can(value) ? (
                    <Anchor component="button" ta="left" onClick={() => onOpen(value)}>
                      {value === '' ? t.without : value}
                    </Anchor>
                  ) : value === '' ? (
                    t.without
                  ) : (
                    value
                  )}
                </Table.Td>
                <Count n={counts.total} />
                <Table.Td title={`${Math.round((100 * counts.total) / total)} %`}>
                  <span className={css.share}>
                    <i style={{ width: `${(100 * counts.total) / total}%` }} />
                  </span>
                </Table.Td>
                <Count n={counts.connected} />
                <Count n={counts.late} />
                <Count n={counts.gone} />
                {seen && classes.slice(0, 5).map((worst) => <Count key={worst} n={counts.worst?.[worst] ?? 0} />)}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </>
  )
}

function Count({ n }: { n: number }) {
  return (
    <Table.Td ta="right" className={css.number} data-none={n === 0}>
      {text.number(n)}
    </Table.Td>
  )
}

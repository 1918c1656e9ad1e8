import { Table, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { unwrap } from '../../api/client'
import type { TurnGroup } from '../../api/types'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { Moment, span } from '../../app/time'
import { text as shared } from '../../text'
import { text } from '../../text/queues'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, Section } from '../../widgets/Facts'
import { StatusMark, type Mark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import type { PartProps } from './part'
import css from './Queues.module.css'
import { splitKey } from './search'
import { every, useGroups } from './use-queues'

const keyOf = ({ namespace, check, subscription }: TurnGroup) => `${namespace}/${check}/${subscription}`

/** A group without agents does not run; one that drops or repeats turns needs a look. */
const markOfGroup = ({ agents, expired, again }: TurnGroup): Mark => (agents === 0 ? 'critical' : expired + again > 0 ? 'warning' : 'ok')

export function GroupTable({ namespace, search, change }: PartProps) {
  const c = text.groups.columns
  const number = (
    id: 'open' | 'given' | 'again' | 'expired' | 'late' | 'twice',
    of: (row: TurnGroup) => number,
    wide = false,
  ): Column<TurnGroup> => ({
    id,
    title: c[id],
    width: id === 'again' ? '92px' : '70px',
    end: true,
    wide,
    order: byNumber(of),
    cell: (row) => shared.number(of(row)),
  })
  const columns: Column<TurnGroup>[] = [
    {
      id: 'check',
      title: c.check,
      width: 'minmax(100px, 1.4fr)',
      order: byText((row) => row.check),
      cell: (row) => (
        <span className={css.state}>
          <StatusMark mark={markOfGroup(row)} size={14} /> {row.check}
        </span>
      ),
    },
    { id: 'subscription', title: c.subscription, order: byText((row) => row.subscription), cell: (row) => row.subscription },
    ...(namespace === everywhere
      ? [
          {
            id: 'namespace',
            title: c.namespace,
            wide: true,
            order: byText((row: TurnGroup) => row.namespace),
            cell: (row: TurnGroup) => row.namespace,
          },
        ]
      : []),
    {
      id: 'agents',
      title: c.agents,
      width: '84px',
      end: true,
      order: byNumber((row) => row.agents),
      cell: ({ agents }) => (agents === 0 ? text.groups.noAgents : shared.number(agents)),
    },
    number('open', (row) => row.open),
    {
      id: 'oldest',
      title: c.oldest,
      width: '70px',
      end: true,
      wide: true,
      order: byNumber((row) => row.oldest),
      cell: ({ open, oldest }) => (open > 0 ? span(oldest) : '–'),
    },
    number('given', (row) => row.given, true),
    number('again', (row) => row.again, true),
    number('expired', (row) => row.expired),
    number('late', (row) => row.late, true),
    number('twice', (row) => row.duplicates, true),
  ]
  return (
    <QueryView query={useGroups(namespace)}>
      {(groups) => (
        <DataTable
          label={text.tabs.groups}
          columns={columns}
          rows={groups}
          keyOf={keyOf}
          selected={search.group}
          onOpen={(group) => change({ group })}
          sort={search.sort}
          onSort={(sort) => change({ sort })}
          empty={<EmptyState title={text.groups.none} help={text.groups.noneHelp} />}
        />
      )}
    </QueryView>
  )
}

export function GroupPane({ open, change }: PartProps & { open: string }) {
  const { api } = useApp()
  const { namespace, rest } = splitKey(open)
  const { namespace: check, rest: subscription } = splitKey(rest)
  const query = useQuery({
    queryKey: ['queue', namespace, check],
    refetchInterval: every,
    queryFn: async () => {
      const groups = await unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/queue/{name}', { params: { path: { namespace, name: check } } }),
      )
      return { group: groups?.find((one) => one.subscription === subscription) }
    },
  })
  const t = text.groups
  const group = query.data?.group
  return (
    <DetailPane
      id={open}
      label={`${t.label}: ${check}, ${subscription}`}
      title={check}
      subtitle={`${subscription} · ${namespace}`}
      mark={group && markOfGroup(group)}
      onClose={() => change({ group: undefined })}
    >
      <QueryView query={query}>
        {({ group: one }) =>
          one ? (
            <>
              <Section title={t.turns}>
                {(one.turns ?? []).length === 0 ? (
                  <Text size="sm" c="dimmed">
                    {t.noTurns}
                  </Text>
                ) : (
                  <Table fz="sm" verticalSpacing={4}>
                    <Table.Thead>
                      <Table.Tr>
                        {[t.turn, t.agent, t.since, t.attempt, t.state].map((title) => (
                          <Table.Th key={title}>{title}</Table.Th>
                        ))}
                      </Table.Tr>
                    </Table.Thead>
                    <Table.Tbody>
                      {(one.turns ?? []).map(({ tick, entity, agent, since, attempt, running, lost }) => (
                        <Table.Tr key={`${tick}/${entity ?? ''}`}>
                          <Table.Td>
                            <Moment at={tick} /> {entity}
                          </Table.Td>
                          <Table.Td>{agent}</Table.Td>
                          <Table.Td>{agent && span(since)}</Table.Td>
                          <Table.Td>{attempt}</Table.Td>
                          <Table.Td>{lost ? t.lost : running ? t.running : agent ? t.asked : t.waits}</Table.Td>
                        </Table.Tr>
                      ))}
                    </Table.Tbody>
                  </Table>
                )}
              </Section>
              <Section title={t.counts}>
                <Facts
                  facts={[
                    [t.columns.agents, one.agents === 0 ? t.noAgents : shared.number(one.agents)],
                    [t.waiting, one.waiting > 0 ? shared.number(one.waiting) : undefined],
                    [t.last, one.last],
                    [t.columns.given, shared.number(one.given)],
                    [t.answered, shared.number(one.answered)],
                    [t.declined, shared.number(one.declined)],
                    [t.columns.again, shared.number(one.again)],
                    [t.columns.expired, shared.number(one.expired)],
                    [t.columns.late, shared.number(one.late)],
                    [t.columns.twice, shared.number(one.duplicates)],
                    [t.answer, one.answer > 0 ? span(one.answer) : undefined],
                    [t.deadline, one.deadline > 0 ? span(one.deadline) : undefined],
                  ]}
                />
              </Section>
              {one.agents > 0 && (
                <Section title={t.fairness}>
                  <Text size="sm">{t.spread(one.fairness.least, one.fairness.most, one.fairness.mean)}</Text>
                  <ul className={css.list}>
                    {(one.fairness.bins ?? []).map(({ from, to, agents }) => (
                      <li key={from}>{t.agentsOf(agents, from, to)}</li>
                    ))}
                  </ul>
                </Section>
              )}
              {(one.twice ?? []).length > 0 && (
                <Section title={t.twice}>
                  <Facts facts={(one.twice ?? []).map(({ first, second, at }) => [t.both(first, second), <Moment key={at} at={at} />])} />
                </Section>
              )}
            </>
          ) : (
            <EmptyState title={shared.missing} />
          )
        }
      </QueryView>
    </DetailPane>
  )
}

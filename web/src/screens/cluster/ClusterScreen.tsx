import { Button, Group, Table } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { unwrap } from '../../api/client'
import type { ClusterStatus, MemberStatus } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { Age, Moment } from '../../app/time'
import { useCluster, useRate } from '../../app/use-cluster'
import { text } from '../../text'
import { clusterText as t } from '../../text/cluster'
import { CopyButton } from '../../widgets/CopyButton'
import { StatusMark, type Mark } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Panel, Screen, Space } from '../../widgets/Screen'
import { WideTable } from '../../widgets/WideTable'
import { DrainMember, EndDrain, RemoveMember, SetLevel } from './acts'
import css from './ClusterScreen.module.css'
import { stateOf, sum, upOf } from './present'

const route = getRouteApi('/cluster')

/** The backends: how each is, how the data is copied, and what can be done about it. */
export function ClusterScreen() {
  const { act, member } = route.useSearch()
  const navigate = route.useNavigate()
  const open = (act?: string, member?: string) => void navigate({ search: (all) => ({ ...all, act, member }), replace: true })
  const query = useCluster()
  const rate = useRate(query)
  const status = query.data
  const chosen = (status?.members ?? []).find(({ name }) => name === member)
  return (
    <Screen
      title={t.title}
      bar={
        <>
          {status && (
            <span className={css.muted}>
              {t.summary(upOf(status).length, status.size, sum((status.members ?? []).map((one) => one.sessions)))}
              {rate !== undefined && `, ${text.now.rate(rate)}`}
            </span>
          )}
          <Space />
        </>
      }
    >
      <QueryView query={query}>
        {(data) => (
          <>
            <Problems status={data} />
            <Members status={data} onAct={open} />
            <Streams status={data} />
            <Postgres />
            <LogLevels members={upOf(data)} onAct={open} />
            <Panel title={t.backup}>
              <p className={css.muted}>{t.backupHelp}</p>
              <div className={css.command}>
                <code>{t.backupCommand(location.origin)}</code>
                <CopyButton value={() => t.backupCommand(location.origin)} />
              </div>
            </Panel>
          </>
        )}
      </QueryView>
      {status && chosen && act === 'drain' && (
        <DrainMember member={chosen} others={upOf(status).filter((one) => one !== chosen && !one.draining).length} onClose={() => open()} />
      )}
      {chosen && act === 'undrain' && <EndDrain member={chosen} onClose={() => open()} />}
      {chosen && act === 'remove' && <RemoveMember member={chosen} onClose={() => open()} />}
      {chosen && act === 'level' && <SetLevel member={chosen} onClose={() => open()} />}
    </Screen>
  )
}

function State({ mark, word }: { mark: Mark; word: string }) {
  return (
    <span className={css.state}>
      <StatusMark mark={mark} /> {word}
    </span>
  )
}

function Problems({ status }: { status: ClusterStatus }) {
  const problems = status.problems ?? []
  return (
    <Panel title={problems.length === 0 ? t.problems : t.found(problems.length)}>
      <ul className={css.problems} aria-live="polite">
        {problems.length === 0 && (
          <li>
            <State mark="ok" word={t.well(status.size)} />
          </li>
        )}
        {problems.map((problem) => (
          <li key={problem}>
            <State mark="critical" word={problem} />
          </li>
        ))}
      </ul>
    </Panel>
  )
}

function Members({ status, onAct }: { status: ClusterStatus; onAct: (act: string, member: string) => void }) {
  const rights = useRights(everywhere)
  const members = status.members ?? []
  const all = sum(members.map(({ sessions }) => sessions))
  const why = (verb: string) => rights.why(verb, 'cluster')
  return (
    <Panel title={t.members}>
      <WideTable minWidth={820}>
        <Table verticalSpacing={6} fz="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t.member}</Table.Th>
              <Table.Th>{t.state}</Table.Th>
              <Table.Th className={css.number}>{t.sessions}</Table.Th>
              <Table.Th className={css.number}>{t.disk}</Table.Th>
              <Table.Th title={t.lagHelp}>{t.lag}</Table.Th>
              <Table.Th className={css.number}>{t.clock}</Table.Th>
              <Table.Th>{t.started}</Table.Th>
              <Table.Th>{t.version}</Table.Th>
              <Table.Th>{t.acts}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {members.map((member) => (
              <Table.Tr key={member.id || member.name}>
                <Table.Td title={member.api_url}>
                  {member.name}
                  {member.self && members.length > 1 && <div className={css.muted}>{t.here}</div>}
                </Table.Td>
                <Table.Td>
                  <State {...stateOf(member)} />
                </Table.Td>
                <Table.Td className={css.number}>
                  {text.number(member.sessions)}
                  {all > 0 && members.length > 1 && (
                    <span className={css.share} title={t.share(Math.round((100 * member.sessions) / all))}>
                      <span style={{ width: `${(100 * member.sessions) / all}%` }} />
                    </span>
                  )}
                </Table.Td>
                <Table.Td className={css.number}>{t.size(member.disk_free)}</Table.Td>
                <Table.Td>{t.lags(sum(member.fold_lag), member.definitions_lag)}</Table.Td>
                <Table.Td className={css.number}>{t.ahead(member.clock_skew_seconds)}</Table.Td>
                <Table.Td>
                  <Age at={member.started ?? 0} />
                </Table.Td>
                <Table.Td title={member.version}>{(member.version ?? '').split('-')[0]}</Table.Td>
                <Table.Td>
                  <Group gap={6} wrap="nowrap">
                    {member.up && !member.draining && (
                      <Act label={t.drain} name={member.name} why={why('create')} onClick={() => onAct('drain', member.name)} />
                    )}
                    {member.up && member.draining && (
                      <Act label={t.undrain} name={member.name} why={why('delete')} onClick={() => onAct('undrain', member.name)} />
                    )}
                    {!member.up && (
                      <Act label={t.remove} name={member.name} why={why('delete')} onClick={() => onAct('remove', member.name)} />
                    )}
                  </Group>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </WideTable>
      <p className={css.muted}>{t.reserve(t.size(status.disk_reserve))}</p>
    </Panel>
  )
}

function Act({ label, name, why, onClick }: { label: string; name: string; why: string | undefined; onClick: () => void }) {
  return (
    <Button size="compact-sm" variant="default" aria-label={`${label}: ${name}`} disabled={why !== undefined} title={why} onClick={onClick}>
      {label}
    </Button>
  )
}

function Streams({ status }: { status: ClusterStatus }) {
  return (
    <Panel title={t.streams}>
      <div className={css.lines}>
        <p className={css.muted}>
          {status.nats ? t.theirNATS(status.nats) : t.ownNATS}{' '}
          {status.leader ? t.leading(status.leader) : t.noLeader(status.leader_error ?? '')}
        </p>
        <WideTable minWidth={560}>
          <Table verticalSpacing={6} fz="sm">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t.stream}</Table.Th>
                <Table.Th>{t.leader}</Table.Th>
                <Table.Th>{t.copies}</Table.Th>
                <Table.Th>{t.owner}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {(status.streams ?? []).map((stream) => {
                const replicas = stream.replicas ?? []
                const current = replicas.filter(({ current, offline }) => current && !offline).length + (stream.leader ? 1 : 0)
                const owner = (status.partitions ?? []).find(({ partition }) => stream.name === `EVENTLOG_${partition}`)
                const mark = stream.error || !stream.leader ? 'critical' : current < stream.copies ? 'warning' : 'ok'
                return (
                  <Table.Tr key={stream.name}>
                    <Table.Td title={stream.name}>{stream.holds}</Table.Td>
                    <Table.Td>{stream.leader || stream.error || t.none}</Table.Td>
                    <Table.Td title={replicas.map((one) => t.replica(one.member, one.offline, one.lag)).join('\n')}>
                      <State mark={mark} word={t.current(current, stream.copies)} />
                      {replicas
                        .filter(({ current, offline }) => !current || offline)
                        .map((one) => (
                          <div key={one.member} className={css.muted}>
                            {t.replica(one.member, one.offline, one.lag)}
                          </div>
                        ))}
                    </Table.Td>
                    <Table.Td>{owner && (owner.owner || t.none)}</Table.Td>
                  </Table.Tr>
                )
              })}
            </Table.Tbody>
          </Table>
        </WideTable>
      </div>
    </Panel>
  )
}

function Postgres() {
  const { api } = useApp()
  const query = useQuery({
    queryKey: ['postgres'],
    queryFn: async () => (await unwrap(api.GET('/api/lapwing/v1/postgres'))) ?? [],
    refetchInterval: 10_000,
    retry: false,
  })
  return (
    <Panel title={t.postgres}>
      <QueryView query={query} rows={2}>
        {(backends) =>
          backends.some(({ configured, unknown }) => configured || unknown) ? (
            <WideTable minWidth={560}>
              <Table verticalSpacing={6} fz="sm">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>{t.member}</Table.Th>
                    <Table.Th>{t.pg.server}</Table.Th>
                    <Table.Th>{t.pg.state}</Table.Th>
                    <Table.Th className={css.number}>{t.pg.lag}</Table.Th>
                    <Table.Th>{t.pg.journal}</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {backends.map((one) => (
                    <Table.Tr key={one.member}>
                      <Table.Td>{one.member}</Table.Td>
                      <Table.Td>{one.server}</Table.Td>
                      <Table.Td>
                        {one.unknown ? (
                          <State mark="unknown" word={one.unknown} />
                        ) : one.connected ? (
                          <State mark="ok" word={t.pg.connected} />
                        ) : (
                          <State
                            mark={one.gone ? 'warning' : 'critical'}
                            word={one.gone ? t.pg.gone : [t.pg.not, one.error].filter(Boolean).join(': ')}
                          />
                        )}
                        {one.since && (
                          <span className={css.muted}>
                            {t.pg.since} <Moment at={Date.parse(one.since) / 1000} />
                          </span>
                        )}
                        {one.gaps > 0 && <span className={css.muted}>{t.pg.gaps(one.gaps)}</span>}
                      </Table.Td>
                      <Table.Td className={css.number}>{text.duration(one.lag)}</Table.Td>
                      <Table.Td>
                        {t.size(one.journal?.bytes ?? 0)} / {t.size(one.journal?.max_bytes ?? 0)}
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </WideTable>
          ) : (
            <p className={css.muted}>{t.noPostgres}</p>
          )
        }
      </QueryView>
    </Panel>
  )
}

function LogLevels({ members, onAct }: { members: MemberStatus[]; onAct: (act: string, member: string) => void }) {
  return (
    <Panel title={t.log}>
      <div className={css.lines}>
        {members.map((member) => (
          <Level key={member.name} member={member} onAct={onAct} />
        ))}
      </div>
    </Panel>
  )
}

function Level({ member: { name }, onAct }: { member: MemberStatus; onAct: (act: string, member: string) => void }) {
  const { api } = useApp()
  const rights = useRights(everywhere)
  const query = useQuery({
    queryKey: ['log-level', name],
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/log-level', { params: { query: { member: name } } })),
    refetchInterval: 10_000,
    retry: false,
  })
  return (
    <Group gap="sm">
      <b>{name}</b>
      {query.error ? (
        <span className={css.muted}>{query.error.message}</span>
      ) : (
        query.data && (
          <>
            <span>{query.data.level}</span>
            {(query.data.changed ?? []).map((one) => (
              <span key={one.component ?? ''} className={css.muted}>
                {t.changed(one.level, one.component ?? '')} {t.until} <Moment at={one.until} />
              </span>
            ))}
            <Act label={t.change} name={name} why={rights.why('create', 'cluster')} onClick={() => onAct('level', name)} />
          </>
        )
      )}
    </Group>
  )
}

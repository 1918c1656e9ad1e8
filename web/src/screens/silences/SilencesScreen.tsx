import { Button, SegmentedControl, Select } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { getRouteApi } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { unwrap } from '../../api/client'
import type { Silenced } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { Moment, span, useNow } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text'
import { silences as t } from '../../text/silences'
import { byNumber, byText, DataTable, type Column } from '../../widgets/DataTable'
import { EmptyState } from '../../widgets/EmptyState'
import { Icon } from '../../widgets/icons'
import { QueryView } from '../../widgets/QueryView'
import { Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import { EndMany } from './EndMany'
import { endedOf, hasWords, keyOf, kindOf, subjectOf, type Ended } from './model'
import type { SilencesSearch } from './search'
import { SilenceCalendar } from './SilenceCalendar'
import { SilenceDetail } from './SilenceDetail'
import { SilenceForm } from './SilenceForm'
import css from './SilencesScreen.module.css'
import { usePreview, useSilences } from './use-silences'
import { What } from './What'

const route = getRouteApi('/silences')

/** Entries of the audit log that are read to find what ended. */
const entries = 1000

/** All silences, how they act now, and what ended lately. */
export function SilencesScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: { [K in keyof SilencesSearch]?: string | undefined }) =>
    void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const namespace = search.ns ?? everywhere
  const rights = useRights(namespace)
  const query = useSilences(namespace)
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set())
  const [ending, setEnding] = useState(false)
  const now = useNow() / 1000
  const show = search.show ?? 'all'
  const all = query.data ?? []
  const found = all.filter((one) => (show === 'all' || kindOf(one, now) === show) && hasWords(one, search.q ?? ''))
  const chosen = all.filter((one) => picked.has(keyOf(one)))
  const place = found.findIndex((one) => keyOf(one) === search.silence)
  const open = (silence: string | undefined) => change({ silence })
  const why = rights.why('create', 'silenced')
  const make = (
    <Button size="xs" onClick={() => change({ make: '1' })} disabled={why !== undefined} title={why}>
      {t.make}
    </Button>
  )
  const empty =
    all.length === 0 ? (
      <EmptyState title={t.empty} help={t.emptyHelp}>
        {make}
      </EmptyState>
    ) : (
      <EmptyState title={text.nothingMatches} help={t.nothingHelp} />
    )
  return (
    <Screen
      title={t.title}
      flush
      bar={
        <>
          <SearchBox value={search.q ?? ''} onChange={(q) => change({ q: q || undefined })} placeholder={t.searchHint} />
          <Select
            size="xs"
            w={150}
            aria-label={t.show}
            value={show}
            data={t.shows}
            allowDeselect={false}
            onChange={(value) => change({ show: value === 'all' ? undefined : (value ?? undefined) })}
          />
          {show !== 'ended' && (
            <SegmentedControl
              size="xs"
              aria-label={t.view}
              value={search.view ?? 'list'}
              data={t.views}
              onChange={(view) => change({ view: view === 'list' ? undefined : view })}
            />
          )}
          <Space />
          <span className={css.count}>{query.data && show !== 'ended' ? t.count(found.length) : ''}</span>
          {make}
        </>
      }
      detail={
        search.silence !== undefined && (
          <SilenceDetail
            id={search.silence}
            listed={all.find((one) => keyOf(one) === search.silence)}
            onClose={() => open(undefined)}
            onStep={(by) => {
              const next = found[place + by]
              if (next) open(keyOf(next))
            }}
          />
        )
      }
    >
      {show === 'ended' ? (
        <EndedList namespace={namespace} words={search.q ?? ''} there={query.data} />
      ) : (
        <QueryView query={query}>
          {() =>
            search.view === 'calendar' ? (
              <SilenceCalendar
                silences={found}
                week={search.week}
                onWeek={(week) => change({ week })}
                selected={search.silence}
                onOpen={open}
                everywhere={namespace === everywhere}
                empty={empty}
              />
            ) : (
              <List
                silences={found}
                everywhere={namespace === everywhere}
                selected={search.silence}
                onOpen={open}
                sort={search.sort}
                onSort={(sort) => change({ sort })}
                picked={picked}
                onPick={setPicked}
                empty={empty}
              />
            )
          }
        </QueryView>
      )}
      {chosen.length > 0 && show !== 'ended' && (
        <div className={css.acts} role="toolbar" aria-label={t.selectedTitle}>
          <b>{t.selected(chosen.length)}</b>
          <Button
            size="compact-sm"
            variant="default"
            disabled={!rights.can('delete', 'silenced')}
            title={rights.why('delete', 'silenced')}
            onClick={() => setEnding(true)}
          >
            {t.endNow}
          </Button>
          <Button size="compact-sm" variant="subtle" onClick={() => setPicked(new Set())}>
            {t.clear}
          </Button>
        </div>
      )}
      {ending && (
        <EndMany
          silences={chosen}
          onClose={(finished) => {
            setEnding(false)
            if (finished) setPicked(new Set())
          }}
        />
      )}
      {search.make !== undefined && <SilenceForm namespace={namespace} onClose={() => change({ make: undefined })} />}
    </Screen>
  )
}

interface ListProps {
  silences: readonly Silenced[]
  everywhere: boolean
  selected: string | undefined
  onOpen: (key: string | undefined) => void
  sort: string | undefined
  onSort: (sort: string | undefined) => void
  picked: ReadonlySet<string>
  onPick: (picked: ReadonlySet<string>) => void
  empty: React.ReactNode
}

function List({ silences, everywhere: withNamespace, empty, ...rest }: ListProps) {
  const c = t.columns
  const columns = useMemo(
    (): Column<Silenced>[] => [
      {
        id: 'what',
        title: c.what,
        width: 'minmax(140px, 2fr)',
        cell: (one) => <What silence={one} namespace={withNamespace} />,
        order: byText((one) => t.what(subjectOf(one))),
      },
      {
        id: 'kind',
        title: c.kind,
        width: '116px',
        wide: true,
        cell: (one) => <Kind silence={one} />,
        order: byText((one) => kindOf(one, Date.now() / 1000)),
      },
      {
        id: 'reason',
        title: c.reason,
        width: 'minmax(90px, 1.4fr)',
        wide: true,
        cell: (one) => one.reason,
        order: byText((one) => one.reason ?? ''),
      },
      {
        id: 'creator',
        title: c.creator,
        width: 'minmax(60px, 0.6fr)',
        wide: true,
        cell: (one) => one.creator,
        order: byText((one) => one.creator ?? ''),
      },
      {
        id: 'begin',
        title: c.begin,
        width: '92px',
        wide: true,
        cell: (one) => <Begin silence={one} />,
        order: byNumber((one) => one.begin ?? 0),
      },
      {
        id: 'ends',
        title: c.ends,
        width: '132px',
        cell: (one) => <Ends silence={one} />,
        order: byNumber((one) => one.expire_at || Infinity),
      },
      { id: 'hits', title: c.hits, width: '116px', end: true, cell: (one) => <Hits silence={one} /> },
    ],
    [c, withNamespace],
  )
  return <DataTable label={t.title} columns={columns} rows={silences} keyOf={keyOf} empty={empty} {...rest} />
}

function Kind({ silence }: { silence: Silenced }) {
  const kind = kindOf(silence, useNow() / 1000)
  return (
    <span className={css.kind} data-kind={kind}>
      <Icon name={icons[kind]} size={14} /> {t.kinds[kind]}
    </span>
  )
}

const icons = { active: 'muted', scheduled: 'audit', recurring: 'refresh', acknowledgement: 'check' } as const

function Begin({ silence: { begin = 0 } }: { silence: Silenced }) {
  const now = useNow() / 1000
  return <time title={text.dateTime(begin)}>{begin > now ? t.begins(span(begin - now)) : text.ago(now - begin)}</time>
}

function Ends({ silence: { expire_at: at = 0, expire_on_resolve: resolve } }: { silence: Silenced }) {
  const now = useNow() / 1000
  if (at === 0) return <span className={css.none}>{resolve ? t.noEndResolve : t.noEnd}</span>
  return (
    <time className={css.ends} data-soon={at - now < 900} title={text.dateTime(at)}>
      {t.ends(span(at - now))}
    </time>
  )
}

/** How many events a silence hits; asked for the rows that are visible. */
function Hits({ silence }: { silence: Silenced }) {
  const { data, error } = usePreview(silence)
  if (data === undefined)
    return (
      <span className={css.none} title={error?.message}>
        {error ? '–' : '…'}
      </span>
    )
  if (!data.holds)
    return (
      <span className={css.none} title={t.notActive}>
        {t.notNow(data.events)}
      </span>
    )
  return (
    <span data-failing={data.failing > 0} className={css.hits}>
      {t.hits(data.events, data.failing)}
    </span>
  )
}

function EndedList({ namespace, words, there }: { namespace: string; words: string; there: readonly Silenced[] | undefined }) {
  const { api } = useApp()
  const now = useNow() / 1000
  const log = useQuery({
    queryKey: definitionsKey('silenced', 'audit', namespace),
    refetchInterval: 10_000,
    queryFn: () => {
      const query = { resource: 'silenced', limit: entries }
      return namespace === everywhere
        ? unwrap(api.GET('/api/lapwing/v1/audit', { params: { query } }))
        : unwrap(api.GET('/api/lapwing/v1/namespaces/{namespace}/audit', { params: { path: { namespace }, query } }))
    },
  })
  const minute = Math.floor(now / 60)
  const ended = useMemo(
    () =>
      (there === undefined ? [] : endedOf(log.data ?? [], new Set(there.map(keyOf)), minute * 60 + 60)).filter(({ silence }) =>
        hasWords(silence, words),
      ),
    [log.data, there, words, minute],
  )
  const c = t.columns
  const columns: Column<Ended>[] = [
    {
      id: 'what',
      title: c.what,
      width: 'minmax(140px, 2fr)',
      cell: ({ silence }) => <What silence={silence} namespace={namespace === everywhere} />,
    },
    { id: 'reason', title: c.reason, width: 'minmax(90px, 1.4fr)', wide: true, cell: ({ silence }) => silence.reason },
    { id: 'creator', title: c.creator, width: 'minmax(60px, 0.6fr)', wide: true, cell: ({ silence }) => silence.creator },
    { id: 'at', title: c.at, width: 'minmax(150px, 0.9fr)', cell: ({ at }) => <Moment at={at} seconds={false} /> },
    {
      id: 'by',
      title: c.by,
      width: 'minmax(110px, 0.8fr)',
      cell: ({ by, resolved }) => (by !== undefined ? t.endedBy(by) : resolved ? t.endedResolved : t.endedItself),
    },
  ]
  return (
    <QueryView query={log}>
      {() => (
        <>
          <DataTable
            label={t.shows[5]?.label ?? ''}
            columns={columns}
            rows={ended}
            keyOf={({ key, at, silence }) => `${key} ${silence.begin} ${at}`}
            empty={<EmptyState title={t.noneEnded} help={t.noneEndedHelp} />}
          />
          {ended.length > 0 && <p className={css.note}>{t.endedNote(entries)}</p>}
        </>
      )}
    </QueryView>
  )
}

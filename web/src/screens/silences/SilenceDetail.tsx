import { Button, Group } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { ApiError } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Silenced } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { useRights } from '../../app/rights'
import { clock, span, useNow } from '../../app/time'
import { DefinitionEditor } from '../../editor'
import { definitionsKey } from '../../live/definitions'
import { quoted } from '../../search/query'
import { text } from '../../text'
import { silences as t } from '../../text/silences'
import { DetailPane } from '../../widgets/DetailPane'
import { EmptyState } from '../../widgets/EmptyState'
import { Facts, list, moment, Pairs, Section } from '../../widgets/Facts'
import { QueryView } from '../../widgets/QueryView'
import { useActs } from './act'
import { HitList } from './HitList'
import { extended, kindOf, partsOf, recurs, subjectOf } from './model'
import css from './SilencesScreen.module.css'
import { usePreview } from './use-silences'

const hour = 3600
const day = 86_400

interface Props {
  id: string
  /** The silence as the list has it. */
  listed: Silenced | undefined
  onClose: () => void
  onStep: (by: number) => void
}

/** All of a silence: its fields, what it holds back, when it applies next, and what can be done with it. */
export function SilenceDetail({ id, listed, onClose, onStep }: Props) {
  const { definitions } = useApp()
  const { namespace, name } = partsOf(id)
  const query = useQuery({
    queryKey: definitionsKey('silenced', 'one', id),
    queryFn: () => definitions.one<Silenced & Definition>(kinds.silenced, namespace, name) as Promise<Silenced>,
    ...(listed ? { placeholderData: listed } : {}),
    retry: false,
  })
  const now = useNow() / 1000
  const gone = query.error instanceof ApiError && query.error.missing
  const silence = gone ? undefined : query.data
  return (
    <DetailPane
      id={id}
      label={t.detail}
      title={silence ? t.what(subjectOf(silence)) : name}
      subtitle={silence && t.kinds[kindOf(silence, now)]}
      onClose={onClose}
      onStep={onStep}
    >
      {gone ? <EmptyState title={t.gone} help={name} /> : <QueryView query={query}>{(one) => <Body silence={one} />}</QueryView>}
    </DetailPane>
  )
}

function Body({ silence }: { silence: Silenced }) {
  const { metadata, reason, creator, begin, expire_at: end = 0 } = silence
  const { time } = usePreferences()
  const f = t.facts
  const preview = usePreview(silence)
  return (
    <>
      <Acts silence={silence} />
      <Section title={preview.data?.holds === false ? t.wouldHold : t.holds}>
        <QueryView query={preview} rows={2}>
          {(found) => {
            const failing = (found.listed ?? []).filter(({ status }) => status !== 0)
            const namespace = metadata?.namespace ?? ''
            return (
              <>
                <p className={css.muted}>{found.holds ? t.applies : t.notActive}</p>
                {failing.length === 0 ? <p className={css.muted}>{t.holdsNone}</p> : <HitList namespace={namespace} events={failing} />}
                {found.failing > failing.length && <p className={css.muted}>{t.listed(failing.length)}</p>}
                {found.events > found.failing && <p className={css.muted}>{t.passing(found.events - found.failing)}</p>}
                {found.holds && found.events > 0 && (
                  <Link to="/events" search={{ ns: namespace, q: `${quoted(metadata?.name ?? '')} in event.check.silenced` }}>
                    {t.allHits}
                  </Link>
                )}
                {recurs(silence) && (
                  <Section title={t.next}>
                    <ul className={css.hitlist}>
                      {(found.spans ?? []).map(({ begins, ends }) => (
                        <li key={begins}>{t.from(clock(begins, time, false), ends === 0 ? t.calendar.open : clock(ends, time, false))}</li>
                      ))}
                    </ul>
                  </Section>
                )}
              </>
            )
          }}
        </QueryView>
      </Section>
      <Section title={t.detail}>
        <Facts
          facts={[
            [f.reason, reason],
            [f.creator, creator],
            [f.begin, moment(begin)],
            [f.end, end === 0 ? (silence.expire_on_resolve ? t.noEndResolve : t.noEnd) : moment(end)],
            [f.expireResolve, silence.expire_on_resolve ? t.whenPasses : undefined],
            [f.resolve, silence.pass_resolve ? t.passes : t.held],
            [f.what, t.what(subjectOf(silence))],
            [f.labels, silence.label_selector && <code>{silence.label_selector}</code>],
            [f.fields, silence.field_selector && <code>{silence.field_selector}</code>],
            [f.limited, list(silence.limited_to)],
            [f.windows, windows(silence)],
            [f.calendars, list(silence.calendars)],
            [f.remind, silence.remind ? t.remindBefore(span(silence.remind)) : undefined],
            [f.remindTo, list(silence.remind_handlers)],
            [f.name, metadata?.name],
            [f.namespace, metadata?.namespace],
          ]}
        />
      </Section>
      <Pairs title={text.labels} sources={[metadata?.labels]} />
      <Pairs title={text.annotations} sources={[metadata?.annotations]} />
    </>
  )
}

function windows({ windows: all }: Silenced) {
  if (!all || all.length === 0) return undefined
  return (
    <ul className={css.hitlist}>
      {all.map(({ cron, rrule, duration = 0, time_zone: zone }, i) => (
        <li key={i}>{t.window(cron || rrule || '', span(duration), zone || 'UTC')}</li>
      ))}
    </ul>
  )
}

function Acts({ silence }: { silence: Silenced }) {
  const rights = useRights(silence.metadata?.namespace ?? '')
  const { time } = usePreferences()
  const { extend, end } = useActs()
  const [editing, setEditing] = useState(false)
  const now = useNow() / 1000
  const noEnd = (silence.expire_at ?? 0) === 0
  const cannot = rights.why('update', 'silenced')
  const longer = (by: number, label: string) => (
    <Button
      size="xs"
      variant="default"
      disabled={noEnd || cannot !== undefined}
      title={cannot ?? (noEnd ? t.noNeed : t.later(clock(extended(silence, by, now).expire_at ?? 0, time, false)))}
      loading={extend.isPending && extend.variables.by === by}
      onClick={() => extend.mutate({ silence, by })}
    >
      {label}
    </Button>
  )
  return (
    <Group gap="sm">
      {longer(hour, t.hour)}
      {longer(day, t.day)}
      <Button
        size="xs"
        variant="default"
        disabled={!rights.can('delete', 'silenced')}
        title={rights.why('delete', 'silenced')}
        loading={end.isPending}
        onClick={() => end.mutate([silence])}
      >
        {t.endNow}
      </Button>
      <Button size="xs" variant="default" disabled={cannot !== undefined} title={cannot} onClick={() => setEditing(true)}>
        {t.edit}
      </Button>
      {editing && <DefinitionEditor kind={kinds.silenced} definition={silence as Definition} onClose={() => setEditing(false)} />}
    </Group>
  )
}

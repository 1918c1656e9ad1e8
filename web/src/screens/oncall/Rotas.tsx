import { ActionIcon, Button, Group, Select, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Contact, OnCallShift, Rota } from '../../api/types'
import { useApp } from '../../app/context'
import { place } from '../../app/days'
import { usePreferences } from '../../app/preferences'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { clock, span, useNow } from '../../app/time'
import { DefinitionEditor } from '../../editor'
import { definitionsKey } from '../../live/definitions'
import { oncall as t } from '../../text/oncall'
import { EmptyState } from '../../widgets/EmptyState'
import { FormDialog } from '../../widgets/FormDialog'
import { Icon } from '../../widgets/icons'
import { MomentInput } from '../../widgets/MomentInput'
import { QueryView } from '../../widgets/QueryView'
import { Panel } from '../../widgets/Screen'
import { done, failed } from '../../widgets/toast'
import { useDays, WeekBar } from '../../widgets/WeekBar'
import { DeleteButton } from './DeleteButton'
import { contactsIn, gapsOf, shiftAfter, shiftAt, withOverride, withoutOverride, type RotaTurns } from './model'
import css from './OnCallScreen.module.css'

const week = 7
/** How long one takes over where no turn goes on, in seconds. */
const turn = 8 * 3600

interface Props {
  namespace: string
  week: string | undefined
  onWeek: (week: string | undefined) => void
}

/** Turns of all rotas in a time. Answers about turns do not have the namespace, so each namespace with rotas is asked. */
function useTurns(namespace: string, from: number, to: number) {
  const { api, definitions } = useApp()
  return useQuery({
    queryKey: definitionsKey('rotas', 'turns', namespace, from, to),
    refetchInterval: 10_000,
    queryFn: async (): Promise<RotaTurns[]> => {
      const rotas = await definitions.list<Rota & Definition>(kinds.rotas, namespace)
      const spaces = [...new Set(rotas.map(({ metadata }) => metadata?.namespace ?? ''))]
      const answers = await Promise.all(
        spaces.map((space) =>
          unwrap(
            api.GET('/api/lapwing/v1/namespaces/{namespace}/oncall', {
              params: { path: { namespace: space }, query: { since: String(from), until: String(to) } },
            }),
          ),
        ),
      )
      return rotas.flatMap((rota) => {
        const space = rota.metadata?.namespace ?? ''
        const turns = answers[spaces.indexOf(space)]?.find((one) => one.rota === rota.metadata?.name)
        return turns ? [{ namespace: space, rota, turns }] : []
      })
    },
  })
}

/** Who is on call now and next in each rota, with a strip of the week. */
export function Rotas({ namespace, week: first, onWeek }: Props) {
  const { begins } = useDays(first, week)
  const from = begins[0] ?? 0
  const to = begins[week] ?? 0
  const minute = Math.floor(useNow() / 60_000) * 60
  const turns = useTurns(namespace, from, to)
  const present = useTurns(namespace, minute, minute + 14 * 86_400)
  return (
    <QueryView query={turns}>
      {(rotas) =>
        rotas.length === 0 ? (
          <EmptyState title={t.empty} help={t.emptyHelp} />
        ) : (
          <>
            <div className={css.week}>
              <WeekBar week={first} shown={week} onWeek={onWeek} />
            </div>
            {rotas.map((one) => (
              <RotaPanel
                key={`${one.namespace}/${one.turns.rota}`}
                {...one}
                begins={begins}
                present={shiftsOf(present.data, one)}
                showNamespace={namespace === everywhere}
              />
            ))}
          </>
        )
      }
    </QueryView>
  )
}

/** The turns of the same rota in another answer. */
function shiftsOf(all: readonly RotaTurns[] | undefined, { namespace, turns }: RotaTurns): readonly OnCallShift[] | undefined {
  return all?.find((one) => one.namespace === namespace && one.turns.rota === turns.rota)?.turns.shifts ?? undefined
}

interface PanelProps extends RotaTurns {
  begins: readonly number[]
  /** Turns from now on; undefined until they are known. */
  present: readonly OnCallShift[] | undefined
  showNamespace: boolean
}

function RotaPanel({ namespace, rota, turns, begins, present, showNamespace }: PanelProps) {
  const rights = useRights(namespace)
  const [taking, setTaking] = useState(false)
  const [editing, setEditing] = useState(false)
  const cannot = rights.why('update', 'rotas')
  const name = turns.rota
  return (
    <Panel
      title={
        <>
          {name} {showNamespace && <small className={css.sub}>{namespace}</small>}
        </>
      }
      tools={
        <Group gap="sm">
          <Button size="xs" disabled={cannot !== undefined} title={cannot} onClick={() => setTaking(true)}>
            {t.takeOver}
          </Button>
          <Button size="xs" variant="default" disabled={cannot !== undefined} title={cannot} onClick={() => setEditing(true)}>
            {t.edit}
          </Button>
          <DeleteButton kind={kinds.rotas} definition={rota as Definition} />
        </Group>
      }
    >
      {turns.problem && (
        <p className={css.warn} role="alert">
          {turns.problem}
        </p>
      )}
      {present && <Present shifts={present} zone={turns.time_zone} description={rota.description} />}
      <Strip shifts={turns.shifts ?? []} begins={begins} name={name} />
      {turns.more && <p className={css.sub}>{t.more}</p>}
      <Overrides rota={rota} cannot={cannot} />
      {taking && <TakeOver namespace={namespace} rota={rota} shifts={present ?? []} onClose={() => setTaking(false)} />}
      {editing && <DefinitionEditor kind={kinds.rotas} definition={rota as Definition} onClose={() => setEditing(false)} />}
    </Panel>
  )
}

function Present({ shifts, zone, description }: { shifts: readonly OnCallShift[]; zone: string; description: string | undefined }) {
  const { time } = usePreferences()
  const now = useNow() / 1000
  const current = shiftAt(shifts, now)
  const next = shiftAfter(shifts, now)
  return (
    <dl className={css.head}>
      <div>
        <dt>{t.now}</dt>
        <dd>
          <b>{current?.contact ?? t.nobody}</b>{' '}
          <span className={css.sub}>
            {current
              ? `${t.until(clock(current.until, time, false))} (${span(current.until - now)})`
              : next && t.until(clock(next.begin, time, false))}
          </span>
          {current?.no_contact && <Warn>{t.unreachable}</Warn>}
        </dd>
      </div>
      {next && (
        <div>
          <dt>{t.then}</dt>
          <dd>
            <b>{current && next.begin > current.until ? t.nobodyUntil(clock(next.begin, time, false)) : next.contact}</b>{' '}
            {current && next.begin > current.until && <span className={css.sub}>{next.contact}</span>}
            {next.no_contact && <Warn>{t.unreachable}</Warn>}
          </dd>
        </div>
      )}
      <div>
        <dt>{t.zone(zone)}</dt>
        <dd>{description}</dd>
      </div>
    </dl>
  )
}

export function Warn({ children }: { children: string }) {
  return (
    <span className={css.warn}>
      <Icon name="bell" size={14} /> {children}
    </span>
  )
}

function Strip({ shifts, begins, name }: { shifts: readonly OnCallShift[]; begins: readonly number[]; name: string }) {
  const { time } = usePreferences()
  const now = useNow() / 1000
  const from = begins[0] ?? 0
  const to = begins.at(-1) ?? 0
  const at = (moment: number) => clock(moment, time, false)
  const gaps = gapsOf(shifts, from, to)
  const contacts = [...new Set(shifts.map(({ contact }) => contact))].sort()
  const format = new Intl.DateTimeFormat('en-GB', { weekday: 'short', day: 'numeric', ...(time === 'utc' ? { timeZone: 'UTC' } : {}) })
  const style = (begin: number, end: number) => {
    const bar = place({ begins: begin, ends: end }, from, to)
    return { left: `${100 * (bar?.left ?? 0)}%`, width: `${100 * (bar?.width ?? 0)}%` }
  }
  return (
    <>
      <div className={css.days} aria-hidden="true">
        {begins.slice(0, -1).map((day, i) => (
          <span key={day} data-today={day <= now && now < (begins[i + 1] ?? 0)}>
            {format.format(day * 1000)}
          </span>
        ))}
      </div>
      <div className={css.strip} role="list" aria-label={name}>
        {begins.slice(1, -1).map((day) => (
          <i key={day} aria-hidden="true" style={{ left: `${(100 * (day - from)) / (to - from)}%` }} />
        ))}
        {now >= from && now < to && <i data-now="true" aria-hidden="true" style={{ left: `${(100 * (now - from)) / (to - from)}%` }} />}
        {shifts.map(({ contact, begin, end, override, reason, no_contact: broken }) => {
          const words = t.bar(contact, at(begin), at(end), override ? [t.override, reason].filter(Boolean).join(', ') : undefined)
          return (
            <span
              key={begin}
              role="listitem"
              title={words}
              aria-label={words}
              data-odd={contacts.indexOf(contact) % 2 === 1}
              data-override={override}
              data-broken={broken}
              style={style(begin, end)}
            >
              {contact}
            </span>
          )
        })}
        {gaps.map(({ begin, end }) => (
          <span
            key={`gap${begin}`}
            role="listitem"
            data-gap="true"
            title={t.gap(at(begin), at(end))}
            aria-label={t.gap(at(begin), at(end))}
            style={style(begin, end)}
          >
            {t.nobody}
          </span>
        ))}
      </div>
      {gaps.length > 0 ? <Warn>{t.gaps(gaps.length)}</Warn> : <span className={css.sub}>{t.noGaps}</span>}
    </>
  )
}

function Overrides({ rota, cannot }: { rota: Rota; cannot: string | undefined }) {
  const { definitions } = useApp()
  const { time } = usePreferences()
  const now = useNow() / 1000
  const remove = useMutation({
    mutationFn: async ({ at }: { at: number; contact: string }) =>
      definitions.replace(kinds.rotas, rota as Definition, withoutOverride(rota, at) as Definition),
    onSuccess: ({ undo }, { contact }) => done(t.removed(contact), undo),
    onError: (err) => failed(t.overrides, err),
  })
  const coming = (rota.overrides ?? []).map((one, at) => ({ ...one, at })).filter(({ end = 0 }) => end > now)
  if (coming.length === 0) return null
  return (
    <>
      <h3 className={css.sub}>{t.overrides}</h3>
      <ul className={css.lines}>
        {coming.map(({ contact = '', begin = 0, end = 0, reason, at }) => (
          <li key={at}>
            <span>{t.bar(contact, clock(begin, time, false), clock(end, time, false), reason)}</span>
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={t.remove(contact)}
              title={cannot ?? t.remove(contact)}
              disabled={cannot !== undefined}
              onClick={() => remove.mutate({ at, contact })}
            >
              <Icon name="close" />
            </ActionIcon>
          </li>
        ))}
      </ul>
    </>
  )
}

/** Puts a contact on call for a time. */
function TakeOver({
  namespace,
  rota,
  shifts,
  onClose,
}: {
  namespace: string
  rota: Rota
  shifts: readonly OnCallShift[]
  onClose: () => void
}) {
  const { definitions } = useApp()
  const { time } = usePreferences()
  const contacts = useQuery({
    queryKey: definitionsKey('contacts', namespace),
    queryFn: () => definitions.list<Contact & Definition>(kinds.contacts, namespace),
  })
  const [contact, setContact] = useState<string | null>(null)
  const [begin, setBegin] = useState<number | undefined>(() => Math.floor(Date.now() / 60_000) * 60)
  const [end, setEnd] = useState<number | undefined>(
    () => shiftAt(shifts, Date.now() / 1000)?.until ?? Math.floor(Date.now() / 60_000) * 60 + turn,
  )
  const [reason, setReason] = useState('')
  const changed =
    contact !== null && begin !== undefined && end !== undefined && end > begin
      ? withOverride(rota, { contact, begin, end, reason })
      : undefined
  const dry = useQuery({
    queryKey: definitionsKey('rotas', 'dry', changed),
    enabled: changed !== undefined,
    retry: false,
    queryFn: () => definitions.put(kinds.rotas, changed as Definition, true),
  })
  const save = useMutation({
    mutationFn: () => definitions.replace(kinds.rotas, rota as Definition, changed as Definition),
    onSuccess: ({ undo }) => {
      done(t.tookOver(contact ?? '', clock(end ?? 0, time, false)), undo)
      onClose()
    },
  })
  const instead = begin !== undefined && end !== undefined ? contactsIn(shifts, begin, end).filter((one) => one !== contact) : []
  return (
    <FormDialog
      opened
      title={t.takeOverTitle(rota.metadata?.name ?? '')}
      label={t.takeOver}
      onClose={onClose}
      act={save}
      disabled={changed === undefined || !dry.isSuccess}
    >
      <Select
        required
        searchable
        label={t.who}
        value={contact}
        data={(contacts.data ?? []).map(({ metadata }) => metadata?.name ?? '')}
        comboboxProps={{ withinPortal: false }}
        onChange={setContact}
        error={contacts.error?.message}
        data-autofocus
      />
      <Group grow>
        <MomentInput label={t.from} value={begin} onChange={setBegin} />
        <MomentInput label={t.to} value={end} onChange={setEnd} />
      </Group>
      <TextInput label={t.reason} value={reason} onChange={(e) => setReason(e.currentTarget.value)} />
      <Text size="sm" c="dimmed" role="status">
        {begin !== undefined && end !== undefined && end <= begin
          ? t.backwards
          : dry.error
            ? dry.error.message
            : changed
              ? [
                  t.would(contact ?? '', clock(begin ?? 0, time, false), clock(end ?? 0, time, false), instead),
                  ...(dry.data?.warnings ?? []),
                ].join(' ')
              : ''}
      </Text>
    </FormDialog>
  )
}

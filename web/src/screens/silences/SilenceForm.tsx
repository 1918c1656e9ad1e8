import {
  ActionIcon,
  Alert,
  Autocomplete,
  Button,
  Checkbox,
  Group,
  MultiSelect,
  NumberInput,
  SegmentedControl,
  Select,
  Stack,
  Text,
  Textarea,
  TextInput,
} from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { unwrap } from '../../api/client'
import { kinds, type Definition } from '../../api/definitions'
import type { Calendar, Silenced } from '../../api/types'
import { useApp } from '../../app/context'
import { usePreferences } from '../../app/preferences'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { clock } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { quoted } from '../../search/query'
import { text } from '../../text'
import { silences as t } from '../../text/silences'
import { FormDialog } from '../../widgets/FormDialog'
import { Icon } from '../../widgets/icons'
import { MomentInput } from '../../widgets/MomentInput'
import { done } from '../../widgets/toast'
import { Length } from '../events/Length'
import { newDraft, silenceOf, type Draft, type DraftWindow, type Scope } from './draft'
import { HitList } from './HitList'
import { recurs } from './model'
import css from './SilencesScreen.module.css'
import { usePreview } from './use-silences'

const f = t.form
/** ms after the last key until the server is asked what a silence would do. */
const settled = 300
/** Names that are offered at most. */
const offered = 50

/** Makes a silence. It shows all the time what it would hit, and when. */
export function SilenceForm({ namespace, onClose }: { namespace: string; onClose: () => void }) {
  const { definitions } = useApp()
  const { time } = usePreferences()
  const [draft, setDraft] = useState<Draft>(() => newDraft(namespace === everywhere ? '' : namespace))
  const set = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }))
  const [asked] = useDebouncedValue(draft, settled)
  const silence = useMemo(() => silenceOf(asked, new Date()), [asked])
  const preview = usePreview(silence)
  const dry = useQuery({
    queryKey: definitionsKey('silenced', 'dry', silence),
    enabled: silence !== undefined,
    retry: false,
    queryFn: () => definitions.create(kinds.silenced, silence as Definition, true),
  })
  const rights = useRights(draft.namespace || everywhere)
  const save = useMutation({
    mutationFn: async () => {
      const made = silenceOf(draft, new Date()) as Silenced
      await definitions.create(kinds.silenced, made as Definition)
      return nameOf(made)
    },
    onSuccess: (name) => {
      done(text.act.silenced(name), () => definitions.delete(kinds.silenced, draft.namespace, name))
      onClose()
    },
  })
  const why = rights.why('create', 'silenced')
  return (
    <FormDialog
      opened
      title={f.title}
      size="min(720px, 96vw)"
      onClose={onClose}
      act={save}
      label={f.silence}
      disabled={why !== undefined || asked !== draft || silence === undefined || !dry.isSuccess || draft.reason.trim() === ''}
    >
      {namespace === everywhere && <Namespace value={draft.namespace} onChange={(to) => set({ namespace: to })} />}
      {why !== undefined && <Alert color="yellow">{why}</Alert>}
      <SegmentedControl
        fullWidth
        size="xs"
        aria-label={f.scope}
        value={draft.scope}
        data={f.scopes}
        onChange={(scope) => set({ scope: scope as Scope })}
      />
      <SubjectFields draft={draft} set={set} />
      <Textarea
        label={f.reason}
        required
        autosize
        minRows={1}
        value={draft.reason}
        onChange={(e) => set({ reason: e.currentTarget.value })}
      />
      <Group grow align="start">
        <Select
          label={f.begin}
          value={draft.begin}
          data={f.begins}
          allowDeselect={false}
          comboboxProps={{ withinPortal: false }}
          onChange={(begin) => set({ begin: begin ?? 'now' })}
        />
        <Length
          label={f.ends}
          value={draft.ends}
          none={text.act.never}
          more={[{ value: 'moment', label: f.moment }]}
          onChange={(ends) => set({ ends })}
        />
      </Group>
      {(draft.begin === 'moment' || draft.ends === 'moment') && (
        <Group grow align="start">
          {draft.begin === 'moment' && <MomentInput label={f.beginAt} value={draft.beginAt} onChange={(beginAt) => set({ beginAt })} />}
          {draft.ends === 'moment' && <MomentInput label={f.endAt} value={draft.endAt} onChange={(endAt) => set({ endAt })} />}
        </Group>
      )}
      <Recurring draft={draft} set={set} />
      <Group align="start" gap="lg">
        <Checkbox
          label={f.passResolve}
          description={f.passResolveHelp}
          checked={draft.passResolve}
          onChange={(e) => set({ passResolve: e.currentTarget.checked })}
        />
        <Checkbox
          label={f.expireResolve}
          checked={draft.expireOnResolve}
          onChange={(e) => set({ expireOnResolve: e.currentTarget.checked })}
        />
      </Group>
      <Select
        label={f.remind}
        value={draft.remind}
        data={f.reminds}
        allowDeselect={false}
        comboboxProps={{ withinPortal: false }}
        onChange={(remind) => set({ remind: remind ?? '0' })}
      />
      <section className={css.preview} aria-label={f.preview} tabIndex={0}>
        <h3>{f.preview}</h3>
        <Text size="sm" role="status">
          {silence === undefined
            ? f.fill
            : preview.data
              ? text.act.hits(preview.data.events, preview.data.failing)
              : preview.error
                ? ''
                : text.act.looking}
        </Text>
        {silence !== undefined && (preview.error ?? dry.error) && <Alert color="red">{(preview.error ?? dry.error)?.message}</Alert>}
        {[...new Set([...(preview.data?.warnings ?? []), ...(dry.data?.warnings ?? [])])].map((warning) => (
          <Alert key={warning} color="yellow">
            {warning}
          </Alert>
        ))}
        {silence !== undefined && preview.data && recurs(silence) && (
          <>
            <h3>{t.next}</h3>
            <ul className={css.hitlist}>
              {(preview.data.spans ?? []).length === 0 && <li>{f.noTimes}</li>}
              {(preview.data.spans ?? []).map(({ begins, ends }) => (
                <li key={begins}>{t.from(clock(begins, time, false), ends === 0 ? t.calendar.open : clock(ends, time, false))}</li>
              ))}
            </ul>
          </>
        )}
        {silence !== undefined && (preview.data?.listed ?? []).length > 0 && (
          <>
            <h3>{f.hitList}</h3>
            <HitList namespace={draft.namespace} events={preview.data?.listed ?? []} told />
          </>
        )}
      </section>
    </FormDialog>
  )
}

/** The name that the server gives to a silence. */
function nameOf({ metadata, subscription, check }: Silenced): string {
  return metadata?.name || `${subscription || '*'}:${check || '*'}`
}

interface Part {
  draft: Draft
  set: (part: Partial<Draft>) => void
}

export function Namespace({ value, onChange }: { value: string; onChange: (namespace: string) => void }) {
  const { api } = useApp()
  const namespaces = useQuery({
    queryKey: definitionsKey('namespaces'),
    queryFn: () => unwrap(api.GET('/api/core/v2/namespaces')),
    staleTime: 60_000,
  })
  return (
    <Select
      required
      searchable
      label={f.namespace}
      value={value || null}
      data={(namespaces.data ?? []).flatMap(({ name }) => (name ? [name] : []))}
      comboboxProps={{ withinPortal: false }}
      onChange={(to) => onChange(to ?? '')}
    />
  )
}

function SubjectFields({ draft, set }: Part) {
  const { scope } = draft
  const [typed] = useDebouncedValue(scope === 'entity' ? draft.entity : '', settled)
  const entities = useNames(draft.namespace, 'entity', typed)
  const [typedCheck] = useDebouncedValue(draft.check, settled)
  const checks = useNames(draft.namespace, 'check', typedCheck)
  const popup = { withinPortal: false, shadow: 'md' as const }
  if (scope === 'selector') {
    return (
      <Stack gap="sm">
        <Group grow align="start">
          <TextInput
            label={f.labelSelector}
            placeholder="region == eu"
            value={draft.labels}
            onChange={(e) => set({ labels: e.currentTarget.value })}
            data-autofocus
            spellCheck={false}
          />
          <TextInput
            label={f.fieldSelector}
            placeholder="check == disk && status == 1"
            value={draft.fields}
            onChange={(e) => set({ fields: e.currentTarget.value })}
            spellCheck={false}
          />
        </Group>
        <TextInput
          label={f.name}
          description={f.nameHelp}
          required
          value={draft.name}
          onChange={(e) => set({ name: e.currentTarget.value })}
        />
      </Stack>
    )
  }
  return (
    <Group grow align="start">
      {scope === 'entity' && (
        <Autocomplete
          label={f.entity}
          required
          value={draft.entity}
          data={entities}
          comboboxProps={popup}
          onChange={(entity) => set({ entity })}
          data-autofocus
        />
      )}
      {scope === 'subscription' && (
        <TextInput
          label={f.subscription}
          required
          value={draft.subscription}
          onChange={(e) => set({ subscription: e.currentTarget.value })}
          data-autofocus
          spellCheck={false}
        />
      )}
      <Autocomplete
        label={scope === 'check' ? f.check : f.onlyCheck}
        required={scope === 'check'}
        {...(scope === 'check' ? {} : { placeholder: f.allChecks })}
        value={draft.check}
        data={checks}
        comboboxProps={popup}
        onChange={(check) => set({ check })}
      />
    </Group>
  )
}

/** Names that events have, by a part of the name. */
function useNames(namespace: string, by: 'entity' | 'check', typed: string): string[] {
  const { api } = useApp()
  const names = useQuery({
    queryKey: ['names', namespace, by, typed],
    enabled: namespace !== '',
    staleTime: 30_000,
    queryFn: async () => {
      const pattern = quoted(`(?i)${typed.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}`)
      const found = await unwrap(
        api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
          params: {
            path: { namespace },
            query: { groupBy: by, limit: offered, ...(typed === '' ? {} : { fieldSelector: `event.${by}.name =~ ${pattern}` }) },
          },
        }),
      )
      return (found.group ?? []).map(({ value }) => value)
    },
  })
  return names.data ?? []
}

function Recurring({ draft, set }: Part) {
  const { definitions } = useApp()
  const [opened, setOpened] = useState(false)
  const calendars = useQuery({
    queryKey: definitionsKey('calendars', draft.namespace),
    enabled: opened && draft.namespace !== '',
    queryFn: () => definitions.list<Calendar & Definition>(kinds.calendars, draft.namespace),
  })
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const fresh: DraftWindow = { rule: 'cron', text: '', zone, minutes: '60' }
  const change = (at: number, part: Partial<DraftWindow>) =>
    set({ windows: draft.windows.map((one, i) => (i === at ? { ...one, ...part } : one)) })
  const toggle = (on: boolean) => {
    setOpened(on)
    set(on ? { windows: [fresh], ends: '0' } : { windows: [], calendars: [], ends: '3600' })
  }
  const names = (calendars.data ?? []).flatMap(({ metadata }) => (metadata?.name ? [metadata.name] : []))
  return (
    <Stack gap="sm">
      <Checkbox label={f.recurring} description={f.recurringHelp} checked={opened} onChange={(e) => toggle(e.currentTarget.checked)} />
      {opened &&
        draft.windows.map((window, i) => (
          <Group key={i} align="end" gap="sm">
            <Select
              w={96}
              size="xs"
              label={f.rule}
              value={window.rule}
              data={f.rules}
              allowDeselect={false}
              comboboxProps={{ withinPortal: false }}
              onChange={(rule) => change(i, { rule: rule as DraftWindow['rule'] })}
            />
            <TextInput
              flex="1 1 160px"
              size="xs"
              aria-label={f.rule}
              placeholder={window.rule === 'cron' ? f.cronHint : f.rruleHint}
              value={window.text}
              onChange={(e) => change(i, { text: e.currentTarget.value })}
              spellCheck={false}
            />
            <TextInput
              w={140}
              size="xs"
              label={f.zone}
              value={window.zone}
              onChange={(e) => change(i, { zone: e.currentTarget.value })}
              spellCheck={false}
            />
            <NumberInput
              w={90}
              size="xs"
              label={f.length}
              min={1}
              value={Number(window.minutes)}
              onChange={(minutes) => change(i, { minutes: String(minutes) })}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label={f.removeWindow}
              title={f.removeWindow}
              onClick={() => set({ windows: draft.windows.filter((_, n) => n !== i) })}
            >
              <Icon name="close" />
            </ActionIcon>
          </Group>
        ))}
      {opened && (
        <Group align="end" gap="sm">
          <Button size="xs" variant="default" onClick={() => set({ windows: [...draft.windows, fresh] })}>
            {f.addWindow}
          </Button>
          <MultiSelect
            flex={1}
            size="xs"
            label={f.calendars}
            placeholder={names.length === 0 ? f.calendarsNone : ''}
            data={names}
            value={[...draft.calendars]}
            comboboxProps={{ withinPortal: false }}
            onChange={(chosen) => set({ calendars: chosen })}
          />
        </Group>
      )}
    </Stack>
  )
}

import { Alert, Autocomplete, Button, CloseButton, Group, SegmentedControl, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { actOn } from '../../api/bulk'
import { unwrap } from '../../api/client'
import type { BulkReport, BulkRequest } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { text } from '../../text'
import { entitiesText } from '../../text/entities'
import { BulkProgress, BulkRefused } from '../../widgets/BulkProgress'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'
import bar from '../events/BulkBar.module.css'
import { SilenceDialog, type SilencePart } from '../events/SilenceDialog'
import { eventConditions, isSelector, requestsOf, sizeOf, type Target } from './bulk'
import { queryOf } from './use-entities'

export type { Target } from './bulk'

const t = entitiesText.bulk

type Action = 'label' | 'silence' | 'delete'

interface Props {
  target: Target
  /** How many entities the list has. */
  matching: number
  labels: readonly string[]
  onAll: () => void
  onClear: () => void
}

/** What can be done with the selected entities. */
export function EntityBulk({ target, matching, labels, onAll, onClear }: Props) {
  const [open, setOpen] = useState<Action>()
  const rights = useRights(target.kind === 'matching' ? target.selected.namespace : everywhere)
  const n = sizeOf(target)
  const blind = isSelector(target) && target.kind === 'matching' && target.condition === ''
  const buttons: { action: Action; why: string | undefined }[] = [
    { action: 'label', why: rights.why('update', 'entities') },
    { action: 'silence', why: rights.why('create', 'silenced') ?? (blind ? t.needsSearch : undefined) },
    { action: 'delete', why: rights.why('delete', 'entities') },
  ]
  const close = (finished: boolean) => {
    setOpen(undefined)
    if (finished) onClear()
  }
  return (
    <div className={bar.bar} role="toolbar" aria-label={t.title}>
      <b>{t.selected(n)}</b>
      {target.kind === 'picked' && matching > n && (
        <Button size="compact-sm" variant="subtle" onClick={onAll}>
          {t.all(matching)}
        </Button>
      )}
      <Group gap={6}>
        {buttons.map(({ action, why }) => (
          <Button key={action} size="compact-sm" variant="default" disabled={why !== undefined} title={why} onClick={() => setOpen(action)}>
            {t.actions[action]}
          </Button>
        ))}
      </Group>
      <CloseButton aria-label={text.bulk.clear} title={text.bulk.clear} onClick={onClear} />
      {open === 'silence' && <SilenceEntities target={target} onClose={close} />}
      {open === 'label' && <LabelEntities target={target} labels={labels} onClose={close} />}
      {open === 'delete' && <DeleteEntities target={target} onClose={close} />}
    </div>
  )
}

interface DialogProps {
  target: Target
  onClose: (finished: boolean) => void
}

/** The keys of the entities of a target, if a selector cannot say which they are: the map has all names. */
function useKeysOf(target: Target): () => Promise<readonly string[]> {
  const { api } = useApp()
  return async () => {
    if (target.kind === 'picked') return target.keys
    if (isSelector(target)) return []
    const { selected } = target
    const map = await unwrap(
      api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/map', {
        params: { path: { namespace: selected.namespace }, query: queryOf(selected) },
      }),
    )
    return (map.groups ?? []).flatMap(({ namespace, names }) => (names ?? []).map((name) => `${namespace}/${name}`))
  }
}

/** A dry run of an act, then the act with its progress. */
function useAct(target: Target, request: Pick<BulkRequest, 'action' | 'labels'>, enabled: boolean, onClose: DialogProps['onClose']) {
  const { session } = useApp()
  const keysOf = useKeysOf(target)
  const [progress, setProgress] = useState<BulkReport>()
  const action = { resource: 'entities', ...request }
  const preview = useQuery({
    queryKey: ['entity-bulk', action, target],
    queryFn: async () => {
      const keys = await keysOf()
      return { keys, report: await actOn(session.fetch, requestsOf(target, keys), action, { dry: true }) }
    },
    enabled,
    staleTime: 0,
    retry: false,
  })
  const would = enabled ? preview.data : undefined
  const run = useMutation({
    mutationFn: () =>
      actOn(session.fetch, requestsOf(target, would?.keys ?? []), action, {
        dry: false,
        matched: would?.report.matched ?? 0,
        onProgress: setProgress,
      }),
    onSuccess: (report) => {
      if (report.denied + report.failed > 0) return // the dialog shows it
      done(t.did[request.action as 'label' | 'delete'](report.done))
      onClose(true)
    },
  })
  const over = run.data !== undefined
  return { preview, would, run, over, progress, act: { ...run, mutate: () => (over ? onClose(true) : run.mutate()) } }
}

/** Sets or removes a label. */
function LabelEntities({ target, labels, onClose }: DialogProps & { labels: readonly string[] }) {
  const [what, setWhat] = useState('set')
  const [key, setKey] = useState('')
  const [value, setValue] = useState('')
  const [asked] = useDebouncedValue({ key: key.trim(), value, what }, 300)
  const ready = asked.key !== '' && asked.key === key.trim() && asked.value === value && asked.what === what
  const { preview, would, run, over, progress, act } = useAct(
    target,
    { action: 'label', labels: { [asked.key]: asked.what === 'remove' ? null : asked.value } },
    ready,
    onClose,
  )
  return (
    <FormDialog
      opened
      title={`${t.actions.label}: ${t.selected(sizeOf(target))}`}
      onClose={() => onClose(over)}
      act={act}
      label={over ? text.close : t.do.label(would?.report.done ?? 0)}
      disabled={!over && (would === undefined || would.report.done === 0)}
    >
      {!over && (
        <>
          <SegmentedControl
            aria-label={t.what}
            value={what}
            onChange={setWhat}
            data={[
              { value: 'set', label: t.set },
              { value: 'remove', label: t.remove },
            ]}
          />
          <Autocomplete label={t.key} required data={[...labels]} value={key} onChange={setKey} data-autofocus />
          {what === 'set' && <TextInput label={t.value} value={value} onChange={(e) => setValue(e.currentTarget.value)} />}
          <Text size="sm" role="status" c="dimmed">
            {preview.error && ready
              ? preview.error.message
              : would
                ? t.would(would.report.done, would.report.denied)
                : key.trim() === ''
                  ? ''
                  : text.act.looking}
          </Text>
        </>
      )}
      {(run.isPending || over) && progress && would && <BulkProgress report={progress} matched={would.report.matched} />}
      {run.data !== undefined && <BulkRefused report={run.data} />}
    </FormDialog>
  )
}

/** Names that a preview shows at most. */
const named = 12

/** Deletes entities with their events. */
function DeleteEntities({ target, onClose }: DialogProps) {
  const { api } = useApp()
  const { preview, would, run, over, progress, act } = useAct(target, { action: 'delete' }, true, onClose)
  const events = useQuery({
    queryKey: ['entity-events', target],
    enabled: would !== undefined,
    retry: false,
    queryFn: async () => {
      let n = 0
      for (const { namespace, field_selector } of eventConditions(target, would?.keys ?? [])) {
        const query = { limit: 0, ...(field_selector === '' ? {} : { fieldSelector: field_selector }) }
        const found = await unwrap(
          api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', { params: { path: { namespace }, query } }),
        )
        n += found.counts.total
      }
      return n
    },
  })
  const report = would?.report
  const objects = report?.objects ?? []
  return (
    <FormDialog
      opened
      title={`${t.actions.delete}: ${t.selected(sizeOf(target))}`}
      onClose={() => onClose(over)}
      act={act}
      label={over ? text.close : t.do.delete(report?.done ?? 0)}
      danger
      disabled={!over && (report === undefined || report.done === 0)}
    >
      {!over && (
        <>
          <div role="status">
            <Text size="sm">
              {preview.error
                ? preview.error.message
                : report
                  ? events.data === undefined
                    ? t.would(report.done, report.denied)
                    : t.wouldDelete(report.done, events.data, report.denied)
                  : text.act.looking}
            </Text>
            <Text size="sm" c="dimmed">
              {t.deleteHelp}
            </Text>
          </div>
          {(report?.connected ?? 0) > 0 && <Alert color="yellow">{t.connected(report?.connected ?? 0)}</Alert>}
          {objects.length > 0 && (
            <Text size="sm" aria-label={t.names}>
              {objects
                .slice(0, named)
                .map(({ name }) => name)
                .join(', ')}
              {(report?.matched ?? 0) > named && ` ${t.more((report?.matched ?? 0) - named)}`}
            </Text>
          )}
        </>
      )}
      {(run.isPending || over) && progress && report && <BulkProgress report={progress} matched={report.matched} />}
      {run.data !== undefined && <BulkRefused report={run.data} />}
    </FormDialog>
  )
}

/** A silence of one entity is for its subscription; one of several is for a condition, in each namespace. */
export function SilenceEntities({ target, onClose }: DialogProps) {
  const { api } = useApp()
  const keysOf = useKeysOf(target)
  const parts = async (): Promise<SilencePart[]> => {
    const [only, ...others] = target.kind === 'picked' ? target.keys : []
    if (only !== undefined && others.length === 0) {
      const [namespace = ''] = only.split('/')
      return [{ namespace, subscription: `entity:${only.slice(namespace.length + 1)}` }]
    }
    const conditions = eventConditions(target, await keysOf())
    if (target.kind === 'picked' || !isSelector(target) || target.selected.namespace !== everywhere) return conditions
    const found = await unwrap(
      api.GET('/api/lapwing/v1/namespaces/{namespace}/entities/view', {
        params: { path: { namespace: everywhere }, query: { ...queryOf(target.selected), groupBy: 'namespace', limit: 500 } },
      }),
    )
    return (found.group ?? []).map(({ value }) => ({ namespace: value, field_selector: target.condition }))
  }
  return (
    <SilenceDialog
      title={`${t.actions.silence}: ${t.selected(sizeOf(target))}`}
      about={['entities', target]}
      parts={parts}
      selector={isSelector(target) && target.kind === 'matching' ? target.condition : undefined}
      byName
      onClose={onClose}
    />
  )
}

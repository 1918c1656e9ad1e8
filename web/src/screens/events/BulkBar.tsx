import { Button, CloseButton, Group, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import type { BulkReport } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { text } from '../../text'
import { BulkProgress, BulkRefused } from '../../widgets/BulkProgress'
import { FormDialog } from '../../widgets/FormDialog'
import { done, failed } from '../../widgets/toast'
import { act, groupBy, requestsOf, selectorOf, sizeOf, type Target } from './bulk'
import css from './BulkBar.module.css'
import { Length, secondsOf } from './Length'
import { SilenceDialog } from './SilenceDialog'

const t = text.bulk

export type Action = 'silence' | 'acknowledge' | 'resolve' | 'run' | 'delete'

interface Props {
  target: Target
  /** How many events the list has, if not all of them are selected. */
  matching: number
  onAll: () => void
  onClear: () => void
  /** The act whose dialog is open. */
  open: Action | undefined
  onOpen: (action: Action | undefined) => void
}

/** What can be done with the selected events. */
export function BulkBar({ target, matching, onAll, onClear, open: asked, onOpen }: Props) {
  const rights = useRights(target.kind === 'matching' ? target.namespace : everywhere)
  const n = sizeOf(target)
  const blind = target.kind === 'matching' && target.search === ''
  const buttons: { action: Action; why: string | undefined }[] = [
    { action: 'silence', why: rights.why('create', 'silenced') ?? (blind ? t.needsSearch : undefined) },
    { action: 'acknowledge', why: rights.why('create', 'silenced') },
    { action: 'resolve', why: rights.why('update', 'events') },
    {
      action: 'run',
      why: rights.why('create', 'checks') ?? (target.kind === 'matching' || n > mostRuns ? t.fewRuns(mostRuns) : undefined),
    },
    { action: 'delete', why: rights.why('delete', 'events') },
  ]
  const open = buttons.some(({ action, why }) => action === asked && why === undefined) ? asked : undefined
  const close = (finished: boolean) => {
    onOpen(undefined)
    if (finished) onClear()
  }
  return (
    <div className={css.bar} role="toolbar" aria-label={t.title}>
      <b>{t.selected(n)}</b>
      {target.kind === 'picked' && matching >= n && (
        <Button size="compact-sm" variant="subtle" onClick={onAll}>
          {t.all(matching)}
        </Button>
      )}
      <Group gap={6}>
        {buttons.map(({ action, why }) => (
          <Button key={action} size="compact-sm" variant="default" disabled={why !== undefined} title={why} onClick={() => onOpen(action)}>
            {t.actions[action]}
          </Button>
        ))}
      </Group>
      <CloseButton aria-label={t.clear} title={t.clear} onClick={onClear} />
      {open === 'silence' && <SilenceMany target={target} onClose={close} />}
      {open === 'run' && <RunMany target={target} onClose={close} />}
      {(open === 'acknowledge' || open === 'resolve' || open === 'delete') && <ActOnMany action={open} target={target} onClose={close} />}
    </div>
  )
}

/** Agents that may be asked at once to run a check again. */
const mostRuns = 100

interface DialogProps {
  target: Target
  onClose: (finished: boolean) => void
}

/** A dry run, then the act with its progress and its report. */
function ActOnMany({ action, target, onClose }: DialogProps & { action: 'acknowledge' | 'resolve' | 'delete' }) {
  const { session } = useApp()
  const [reason, setReason] = useState('')
  const [length, setLength] = useState('0')
  const [progress, setProgress] = useState<BulkReport>()
  const preview = useQuery({
    queryKey: ['bulk', action, requestsOf(target)],
    // An acknowledgement needs a comment; which events it would change does not depend on the words.
    queryFn: () =>
      act(session.fetch, target, { action, ...(action === 'acknowledge' ? { reason: t.actions.acknowledge } : {}) }, { dry: true }),
    staleTime: 0,
    retry: false,
  })
  const would = preview.data
  const run = useMutation({
    mutationFn: () =>
      act(
        session.fetch,
        target,
        { action, ...(action === 'acknowledge' ? { reason, expire: secondsOf(length) } : {}) },
        { dry: false, matched: would?.matched ?? 0, onProgress: setProgress },
      ),
    onSuccess: (report) => {
      if (report.denied + report.failed > 0) return // the dialog shows it
      const undo =
        action === 'acknowledge' && target.kind === 'picked'
          ? () => act(session.fetch, target, { action: 'unacknowledge' }, { dry: false })
          : undefined
      done(t.did(action, report.done), undo)
      onClose(true)
    },
  })
  const over = run.data !== undefined
  return (
    <FormDialog
      opened
      title={`${t.actions[action]}: ${t.selected(sizeOf(target))}`}
      onClose={() => onClose(over)}
      act={{ ...run, mutate: () => (over ? onClose(true) : run.mutate()) }}
      label={over ? text.close : t.do(action, would?.done ?? 0)}
      danger={action === 'delete'}
      disabled={would === undefined || (would.done === 0 && !over) || (action === 'acknowledge' && reason.trim() === '')}
    >
      {action === 'acknowledge' && !over && (
        <>
          <TextInput label={text.act.comment} required value={reason} onChange={(e) => setReason(e.currentTarget.value)} data-autofocus />
          <Length label={text.act.endsAfter} value={length} onChange={setLength} none={text.act.whenResolved} />
        </>
      )}
      {action !== 'acknowledge' && <Text size="sm">{t.help[action]}</Text>}
      {!over && (
        <Text size="sm" role="status" c="dimmed">
          {preview.error ? preview.error.message : would ? t.would(would.done, would.denied) : text.act.looking}
        </Text>
      )}
      {(run.isPending || over) && progress && would && <BulkProgress report={progress} matched={would.matched} />}
      {over && <BulkRefused report={run.data} />}
    </FormDialog>
  )
}

/** One silence for all, in each namespace, so that ending it ends all of it. */
function SilenceMany({ target, onClose }: DialogProps) {
  const { api } = useApp()
  const parts = async () => {
    if (target.kind === 'picked') {
      return [...groupBy(target.keys, (key) => key.split('/')[0] ?? '')].map(([namespace, keys]) => ({
        namespace,
        field_selector: selectorOf(keys),
      }))
    }
    const { namespace, search } = target
    if (namespace !== everywhere) return [{ namespace, field_selector: search }]
    const found = await unwrap(
      api.GET('/api/lapwing/v1/namespaces/{namespace}/events/view', {
        params: { path: { namespace }, query: { fieldSelector: target.selector, groupBy: 'namespace', limit: 500 } },
      }),
    )
    return (found.group ?? []).map(({ value }) => ({ namespace: value, field_selector: search }))
  }
  return (
    <SilenceDialog
      title={`${t.actions.silence}: ${t.selected(sizeOf(target))}`}
      about={target}
      parts={parts}
      selector={target.kind === 'matching' ? target.search : undefined}
      onClose={onClose}
    />
  )
}

/** Asks each agent to run the selected checks again. */
function RunMany({ target, onClose }: DialogProps) {
  const { api } = useApp()
  const keys = target.kind === 'picked' ? target.keys : []
  const run = useMutation({
    mutationFn: () =>
      Promise.allSettled(
        [...groupBy(keys, (key) => `${key.split('/')[0]}/${key.split('/')[2]}`)].map(([of, same]) => {
          const [namespace = '', check = ''] = of.split('/')
          const subscriptions = same.map((key) => `entity:${key.split('/')[1]}`)
          return unwrap(
            api.POST('/api/core/v2/namespaces/{namespace}/checks/{name}/execute', {
              params: { path: { namespace, name: check } },
              body: { subscriptions },
            }),
          )
        }),
      ),
    onSuccess: (results) => {
      const refused = results.filter((one) => one.status === 'rejected')
      if (refused.length > 0) failed(t.notAll, refused[0]?.reason)
      else done(t.did('run', keys.length))
      onClose(true)
    },
  })
  return (
    <FormDialog
      opened
      title={`${t.actions.run}: ${t.selected(keys.length)}`}
      onClose={() => onClose(false)}
      act={run}
      label={t.actions.run}
    >
      <Text size="sm">{t.help.run}</Text>
    </FormDialog>
  )
}

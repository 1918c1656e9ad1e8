import { Button, NumberInput, Select, Text } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../../api/client'
import type { MemberStatus } from '../../api/types'
import { useApp } from '../../app/context'
import { clusterText as t } from '../../text/cluster'
import { FormDialog } from '../../widgets/FormDialog'
import { done, failed } from '../../widgets/toast'

interface Props {
  member: MemberStatus
  onClose: () => void
}

/** A write about a backend, after which its state is asked for anew. */
function useAct(call: () => Promise<unknown>, onDone: () => void) {
  const client = useQueryClient()
  return useMutation({
    mutationFn: call,
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ['cluster'] })
      void client.invalidateQueries({ queryKey: ['log-level'] })
      onDone()
    },
  })
}

export function DrainMember({
  member: { name, sessions },
  others,
  onClose,
}: Props & { /** Backends that take its agents. */ others: number }) {
  const { api } = useApp()
  const [seconds, setSeconds] = useState<string | number>(30)
  const params = { query: { member: name } }
  const act = useAct(
    () => unwrap(api.POST('/api/lapwing/v1/drain', { params, body: { over_seconds: Number(seconds) } })),
    () => {
      done(t.drained(name), () => unwrap(api.DELETE('/api/lapwing/v1/drain', { params })))
      onClose()
    },
  )
  return (
    <FormDialog
      opened
      title={t.drainTitle(name)}
      onClose={onClose}
      act={act}
      label={t.drain}
      danger={others === 0}
      disabled={seconds === ''}
    >
      <Text size="sm">{t.drainHelp(sessions, others)}</Text>
      <NumberInput label={t.over} min={0} max={3600} value={seconds} onChange={setSeconds} data-autofocus />
    </FormDialog>
  )
}

export function EndDrain({ member: { name }, onClose }: Props) {
  const { api } = useApp()
  const params = { query: { member: name } }
  const drain = useQuery({
    queryKey: ['drain', name],
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/drain', { params })),
    refetchInterval: 2000,
  })
  const act = useAct(
    () => unwrap(api.DELETE('/api/lapwing/v1/drain', { params })),
    () => {
      done(t.undrained(name))
      onClose()
    },
  )
  return (
    <FormDialog opened title={`${t.undrain}: ${name}`} onClose={onClose} act={act} label={t.undrain}>
      {drain.data && (
        <Text size="sm" role="status">
          {t.left(drain.data.sessions)}
        </Text>
      )}
      <Text size="sm">{t.undrainHelp}</Text>
    </FormDialog>
  )
}

export function RemoveMember({ member: { name }, onClose }: Props) {
  const { api } = useApp()
  const act = useAct(
    () => unwrap(api.DELETE('/api/lapwing/v1/cluster/members/{name}', { params: { path: { name } } })),
    () => {
      done(t.removed(name))
      onClose()
    },
  )
  return (
    <FormDialog opened title={t.removeTitle(name)} onClose={onClose} act={act} label={t.remove} danger>
      <Text size="sm">{t.removeHelp}</Text>
    </FormDialog>
  )
}

const levels = ['trace', 'debug', 'info', 'warn', 'error']

export function SetLevel({ member: { name }, onClose }: Props) {
  const { api } = useApp()
  const [level, setLevel] = useState<string | null>('debug')
  const [component, setComponent] = useState<string | null>('')
  const [seconds, setSeconds] = useState<string | null>('900')
  const params = { query: { member: name } }
  const present = useQuery({ queryKey: ['log-level', name], queryFn: () => unwrap(api.GET('/api/lapwing/v1/log-level', { params })) })
  const client = useQueryClient()
  const reset = () =>
    unwrap(api.DELETE('/api/lapwing/v1/log-level', { params })).finally(() => client.invalidateQueries({ queryKey: ['log-level'] }))
  const act = useAct(
    () =>
      unwrap(
        api.POST('/api/lapwing/v1/log-level', {
          params,
          body: { level: level ?? '', component: component ?? '', seconds: Number(seconds) },
        }),
      ),
    () => {
      done(t.levelSet(name), reset)
      onClose()
    },
  )
  const changed = (present.data?.changed ?? []).length > 0
  return (
    <FormDialog opened title={t.levelTitle(name)} onClose={onClose} act={act} label={t.change}>
      <Select label={t.level} data={levels} value={level} allowDeselect={false} onChange={setLevel} />
      <Select
        label={t.component}
        value={component}
        allowDeselect={false}
        searchable
        onChange={setComponent}
        data={[{ value: '', label: t.allParts }, ...(present.data?.components ?? []).map((value) => ({ value, label: value }))]}
      />
      <Select label={t.length} description={t.levelHelp} data={t.lengths} value={seconds} allowDeselect={false} onChange={setSeconds} />
      {changed && (
        <Button
          variant="subtle"
          size="compact-sm"
          onClick={() => {
            reset().then(
              () => done(t.levelReset(name)),
              (err: unknown) => failed(t.reset, err),
            )
            onClose()
          }}
        >
          {t.reset}
        </Button>
      )}
    </FormDialog>
  )
}

import { Button, Group, Modal, Popover, SegmentedControl, Stack, Text, TextInput } from '@mantine/core'
import { useDebouncedValue, useDisclosure } from '@mantine/hooks'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { unwrap } from '../../api/client'
import type { Check } from '../../api/types'
import { useApp } from '../../app/context'
import { useRights } from '../../app/rights'
import { quoted } from '../../search/query'
import { text } from '../../text'
import { done, failed } from '../../widgets/toast'
import { Length, secondsOf } from './Length'

interface Props {
  namespace: string
  entity: string
  check: Check
  acknowledged: boolean
}

/** What a user can do with an event. */
export function EventActions({ namespace, entity, check, acknowledged }: Props) {
  const name = check.metadata?.name ?? ''
  const failing = (check.status ?? 0) !== 0
  const { why } = useRights(namespace)
  const target = { namespace, entity, check: name }
  return (
    <Group gap="sm">
      {failing && !acknowledged && <Acknowledge {...target} why={why('create', 'silenced')} />}
      <Silence {...target} why={why('create', 'silenced')} />
      {failing && <Resolve {...target} why={why('update', 'events')} />}
      {(check.interval ?? 0) + (check.cron ?? '').length > 0 && <RunAgain {...target} why={why('create', 'checks')} />}
    </Group>
  )
}

interface Target {
  namespace: string
  entity: string
  check: string
  /** Why the user may not do it. */
  why: string | undefined
}

function Acknowledge({ namespace, entity, check, why }: Target) {
  const { api } = useApp()
  const [opened, { open, close }] = useDisclosure()
  const [comment, setComment] = useState('')
  const [length, setLength] = useState('0')
  const path = { namespace, entity, check }
  const act = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/ack', {
          params: { path },
          body: { comment, expire: secondsOf(length) },
        }),
      ),
    onSuccess: () => {
      close()
      done(text.act.acknowledged(entity, check), () =>
        unwrap(api.DELETE('/api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/ack', { params: { path } })),
      )
    },
    onError: (err) => failed(text.act.acknowledge, err),
  })
  return (
    <Popover opened={opened} onChange={(to) => (to ? open() : close())} position="bottom-start" trapFocus withinPortal>
      <Popover.Target>
        <Button size="xs" disabled={why !== undefined} title={why} onClick={open}>
          {text.act.acknowledge}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <Form busy={act.isPending} label={text.act.acknowledge} onSubmit={() => act.mutate()}>
          <TextInput label={text.act.comment} required value={comment} onChange={(e) => setComment(e.currentTarget.value)} data-autofocus />
          <Length label={text.act.endsAfter} value={length} onChange={setLength} none={text.act.whenResolved} />
        </Form>
      </Popover.Dropdown>
    </Popover>
  )
}

type Scope = 'event' | 'entity' | 'check'

function Silence({ namespace, entity, check, why }: Target) {
  const { api } = useApp()
  const [opened, { open, close }] = useDisclosure()
  const [reason, setReason] = useState('')
  const [length, setLength] = useState('3600')
  const [scope, setScope] = useState<Scope>('event')
  const body = {
    metadata: { namespace, name: '' },
    reason,
    expire: secondsOf(length) || -1,
    ...(scope === 'check' ? {} : { subscription: `entity:${entity}` }),
    ...(scope === 'entity' ? {} : { check }),
  }
  const [asked] = useDebouncedValue(scope, 150)
  const preview = useQuery({
    queryKey: ['silence-preview', namespace, entity, check, asked],
    enabled: opened,
    queryFn: () => unwrap(api.POST('/api/lapwing/v1/namespaces/{namespace}/silenced/preview', { params: { path: { namespace } }, body })),
  })
  const name = `${scope === 'check' ? '*' : `entity:${entity}`}:${scope === 'entity' ? '*' : check}`
  const act = useMutation({
    mutationFn: () => unwrap(api.POST('/api/core/v2/namespaces/{namespace}/silenced', { params: { path: { namespace } }, body })),
    onSuccess: () => {
      close()
      done(text.act.silenced(name), () =>
        unwrap(api.DELETE('/api/core/v2/namespaces/{namespace}/silenced/{name}', { params: { path: { namespace, name } } })),
      )
    },
    onError: (err) => failed(text.act.silence, err),
  })
  return (
    <>
      <Button size="xs" variant="default" disabled={why !== undefined} title={why} onClick={open}>
        {text.act.silence}
      </Button>
      <Modal opened={opened} onClose={close} title={text.act.silence} centered>
        <Form busy={act.isPending} label={text.act.silence} onSubmit={() => act.mutate()}>
          <SegmentedControl
            fullWidth
            aria-label={text.act.what}
            value={scope}
            onChange={(value) => setScope(value as Scope)}
            data={[
              { value: 'event', label: text.act.thisEvent },
              { value: 'entity', label: text.act.thisEntity },
              { value: 'check', label: text.act.thisCheck },
            ]}
          />
          <Length label={text.act.endsAfter} value={length} onChange={setLength} none={text.act.never} />
          <TextInput label={text.act.reason} value={reason} onChange={(e) => setReason(e.currentTarget.value)} data-autofocus />
          <Text size="sm" c="dimmed" role="status">
            {preview.error
              ? preview.error.message
              : preview.data
                ? text.act.hits(preview.data.events, preview.data.failing)
                : text.act.looking}
          </Text>
        </Form>
      </Modal>
    </>
  )
}

function Resolve({ namespace, entity, check, why }: Target) {
  const { api } = useApp()
  const [opened, { open, close }] = useDisclosure()
  const act = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST('/api/lapwing/v1/namespaces/{namespace}/bulk', {
          params: { path: { namespace } },
          body: {
            resource: 'events',
            action: 'resolve',
            field_selector: `event.entity.name == ${quoted(entity)} && event.check.name == ${quoted(check)}`,
            at_most: 1,
          },
        }),
      ),
    onSuccess: ({ done: resolved }) => {
      close()
      if (resolved > 0) done(text.act.resolved(entity, check))
      else failed(text.act.resolve, text.act.notResolved)
    },
    onError: (err) => failed(text.act.resolve, err),
  })
  return (
    <Popover opened={opened} onChange={(to) => (to ? open() : close())} position="bottom-start" trapFocus withinPortal width={300}>
      <Popover.Target>
        <Button size="xs" variant="default" disabled={why !== undefined} title={why} onClick={open}>
          {text.act.resolve}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <Form busy={act.isPending} label={text.act.resolve} onSubmit={() => act.mutate()}>
          <Text size="sm">{text.act.resolveHelp}</Text>
        </Form>
      </Popover.Dropdown>
    </Popover>
  )
}

function RunAgain({ namespace, entity, check, why }: Target) {
  const { api } = useApp()
  const act = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST('/api/core/v2/namespaces/{namespace}/checks/{name}/execute', {
          params: { path: { namespace, name: check } },
          body: { subscriptions: [`entity:${entity}`] },
        }),
      ),
    onSuccess: () => done(text.act.asked(entity, check)),
    onError: (err) => failed(text.act.run, err),
  })
  return (
    <Button size="xs" variant="default" disabled={why !== undefined} title={why} loading={act.isPending} onClick={() => act.mutate()}>
      {text.act.run}
    </Button>
  )
}

function Form(props: { busy: boolean; label: string; onSubmit: () => void; children: ReactNode }) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        props.onSubmit()
      }}
    >
      <Stack gap="md">
        {props.children}
        <Button type="submit" size="sm" loading={props.busy}>
          {props.label}
        </Button>
      </Stack>
    </form>
  )
}

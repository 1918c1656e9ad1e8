import { Alert, Autocomplete, Group, Text } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { ApiError, unwrap } from '../../api/client'
import { warningsOf } from '../../api/definitions'
import type { CheckConfig } from '../../api/types'
import { useApp } from '../../app/context'
import { useNow } from '../../app/time'
import { text } from '../../text'
import { checksText as t } from '../../text/checks'
import { Output } from '../../widgets/Facts'
import { FormDialog } from '../../widgets/FormDialog'
import { markOf, StatusMark } from '../../widgets/icons'
import { plainOutput } from '../events/present'
import { useTargets } from './use-checks'

/** How long a result is waited for beyond the check's own timeout, in seconds. */
const patience = 60

/** Runs a check on one agent, and shows its result when it comes. */
export function TestRun({ check, namespace, onClose }: { check: CheckConfig; namespace: string; onClose: () => void }) {
  const { api } = useApp()
  const name = check.metadata?.name ?? ''
  const targets = useTargets(namespace, name)
  const [typed, setTyped] = useState<string>()
  const agent = typed ?? targets.data?.names?.[0] ?? ''
  const entity = check.proxy_entity_name || agent
  const run = useMutation({
    mutationFn: async () => {
      const call = await api.POST('/api/core/v2/namespaces/{namespace}/checks/{name}/execute', {
        params: { path: { namespace, name } },
        body: { subscriptions: [`entity:${agent}`] },
      })
      const { issued } = await unwrap(Promise.resolve(call))
      return { entity, issued, asked: Date.now(), warnings: warningsOf(call.response.headers.get('Warning')) }
    },
  })
  const asked = run.data
  return (
    <FormDialog
      opened
      title={t.runTitle(name)}
      size="lg"
      onClose={onClose}
      act={{ ...run, mutate: () => run.mutate() }}
      label={asked ? t.runAgain : t.runNow}
      disabled={agent === ''}
    >
      <Text size="sm">{t.runHelp}</Text>
      <Autocomplete
        label={t.agent}
        placeholder={t.agentHint}
        data={[...new Set(targets.data?.names ?? [])]}
        value={agent}
        onChange={setTyped}
        error={targets.error?.message}
      />
      {asked?.warnings.map((warning) => (
        <Alert key={warning} color="yellow">
          {warning}
        </Alert>
      ))}
      {asked &&
        (check.proxy_requests ? (
          <Text size="sm">{t.many}</Text>
        ) : (
          <Result key={asked.asked} namespace={namespace} check={name} patience={patience + (check.timeout ?? 0)} {...asked} />
        ))}
    </FormDialog>
  )
}

interface ResultProps {
  namespace: string
  entity: string
  check: string
  /** Unix seconds, as the agent's result has it. */
  issued: number
  /** Date.now() of the request. */
  asked: number
  /** Seconds. */
  patience: number
}

function Result({ namespace, entity, check, issued, asked, patience }: ResultProps) {
  const { api } = useApp()
  const seconds = useNow() / 1000 - asked / 1000
  const late = seconds > patience
  const query = useQuery({
    queryKey: ['test-run', namespace, entity, check, asked],
    queryFn: async () => {
      try {
        const event = await unwrap(
          api.GET('/api/core/v2/namespaces/{namespace}/events/{entity}/{check}', { params: { path: { namespace, entity, check } } }),
        )
        return (event.check?.issued ?? 0) >= issued ? event : null
      } catch (err) {
        if (err instanceof ApiError && err.missing) return null // the first result makes the event
        throw err
      }
    },
    refetchInterval: ({ state }) => (state.data || Date.now() - asked > patience * 1000 ? false : 1000),
    staleTime: 0,
  })
  const result = query.data?.check
  if (!result) {
    return (
      <Alert color={late ? 'red' : 'gray'} role="status">
        {query.error ? query.error.message : late ? t.tooLong(patience) : t.waiting(seconds)}
      </Alert>
    )
  }
  const status = result.status ?? 0
  return (
    <div role="status">
      <Group gap="sm" mb="sm">
        <StatusMark mark={markOf(status)} />
        <b>{text.status(status)}</b>
        <Text size="sm" c="dimmed">
          {t.took(result.duration ?? 0)}
        </Text>
        <Link to="/events" search={{ ns: namespace, event: `${namespace}/${entity}/${check}` }}>
          {text.detail}
        </Link>
      </Group>
      <Output>{plainOutput(result.output ?? '') || text.noOutput}</Output>
    </div>
  )
}

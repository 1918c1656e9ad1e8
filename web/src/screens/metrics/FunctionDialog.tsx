import { Autocomplete, Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import { useState } from 'react'
import type { GraphiteFunction } from '../../api/graphite'
import { text } from '../../text'
import { metricsText as t } from '../../text/metrics'
import { QueryView } from '../../widgets/QueryView'
import css from './MetricsScreen.module.css'
import { targetOf, writeCall } from './target'

interface Props {
  functions: UseQueryResult<GraphiteFunction[]>
  target: string
  onApply: (target: string) => void
  onClose: () => void
}

/** The functions of the backend with their help; the chosen one is put around a target. */
export function FunctionDialog({ functions, target, onApply, onClose }: Props) {
  const [typed, setTyped] = useState('')
  const [chosen, setChosen] = useState<string>()
  return (
    <Modal opened onClose={onClose} title={t.functions} size="lg" closeButtonProps={{ 'aria-label': text.close }}>
      <QueryView query={functions}>
        {(all) => {
          const usable = all.filter(({ parameters }) => parameters[0]?.type.startsWith('seriesList'))
          const words = typed.toLowerCase().split(/\s+/)
          const found = usable.filter(({ name, help, group }) =>
            words.every((word) => `${name} ${help} ${group}`.toLowerCase().includes(word)),
          )
          const one = usable.find(({ name }) => name === chosen)
          if (one) {
            return (
              <Form
                of={one}
                target={target}
                onBack={() => setChosen(undefined)}
                onApply={(next) => {
                  onApply(next)
                  onClose()
                }}
              />
            )
          }
          return (
            <Stack gap="sm">
              <TextInput
                aria-label={t.functionSearch}
                placeholder={t.functionSearch}
                value={typed}
                onChange={(event) => setTyped(event.currentTarget.value)}
                data-autofocus
              />
              <ul className={css.functions} aria-label={t.functionList}>
                {found.map(({ name, group, help }) => (
                  <li key={name}>
                    <button type="button" onClick={() => setChosen(name)}>
                      <b>{name}</b> <small>{group}</small>
                      <span>{help}</span>
                    </button>
                  </li>
                ))}
                {found.length === 0 && (
                  <li>
                    <Text size="sm" c="dimmed">
                      {t.noFunction}
                    </Text>
                  </li>
                )}
              </ul>
            </Stack>
          )
        }}
      </QueryView>
    </Modal>
  )
}

function Form({
  of: one,
  target,
  onBack,
  onApply,
}: {
  of: GraphiteFunction
  target: string
  onBack: () => void
  onApply: (target: string) => void
}) {
  const parameters = one.parameters.slice(1)
  const [typed, setTyped] = useState<Record<string, string>>({})
  const next = targetOf({ base: target, calls: [writeCall(one.name, parameters, typed)] })
  const missing = parameters.some(({ name, required }) => required && (typed[name] ?? '').trim() === '')
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        onApply(next)
      }}
    >
      <Stack gap="sm">
        <code className={css.form}>{one.form}</code>
        <Text size="sm">{one.help}</Text>
        {parameters.map(({ name, type, required, options }, i) => (
          <Autocomplete
            key={name}
            size="sm"
            label={name}
            description={type}
            required={required}
            value={typed[name] ?? ''}
            data={type === 'boolean' ? ['true', 'false'] : [...new Set(options)]}
            onChange={(value) => setTyped({ ...typed, [name]: value })}
            {...(i === 0 ? { 'data-autofocus': true } : {})}
          />
        ))}
        <Text size="xs" c="dimmed">
          {t.preview}
        </Text>
        <code className={css.form}>{next}</code>
        <Group justify="flex-end">
          <Button variant="default" onClick={onBack}>
            {text.cancel}
          </Button>
          <Button type="submit" disabled={missing}>
            {t.functions}
          </Button>
        </Group>
      </Stack>
    </form>
  )
}

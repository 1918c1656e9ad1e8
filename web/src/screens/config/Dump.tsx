import { Alert, MultiSelect, Text } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { ApiError } from '../../api/client'
import { kinds, type Definition, type Kind } from '../../api/definitions'
import { useApp } from '../../app/context'
import { everywhere } from '../../app/search'
import { fileOf } from '../../editor/yaml'
import { configText as t } from '../../text/config'
import { FormDialog } from '../../widgets/FormDialog'
import { done } from '../../widgets/toast'
import { download } from './download'

const all: Record<string, Kind> = kinds

/** Those that are no settings, but made by agents and by people at work. */
const work = ['entities', 'silenced']

/** Downloads the definitions of some kinds as one file. */
export function Dump({ namespace, kind, onClose }: { namespace: string; kind: Kind | undefined; onClose: () => void }) {
  const { definitions } = useApp()
  const [chosen, setChosen] = useState<string[]>(() =>
    Object.keys(kinds).filter((plural) => !work.includes(plural) || plural === kind?.plural),
  )
  const act = useMutation({
    mutationFn: async () => {
      const documents: { kind: Kind; definition: Definition }[] = []
      const denied: string[] = []
      for (const plural of Object.keys(kinds).filter((one) => chosen.includes(one))) {
        const kind = all[plural] as Kind
        try {
          for (const definition of await definitions.list(kind, namespace)) documents.push({ kind, definition })
        } catch (err) {
          if (!(err instanceof ApiError && err.denied)) throw err
          denied.push(t.kindNames[plural] ?? plural)
        }
      }
      download(`lapwing${namespace === everywhere ? '' : `-${namespace}`}.yaml`, fileOf(documents))
      return { n: documents.length, denied }
    },
    onSuccess: ({ n, denied }) => {
      if (denied.length > 0) return // the dialog says which
      done(t.dumped(n))
      onClose()
    },
  })
  return (
    <FormDialog opened title={t.dumpTitle} size="lg" onClose={onClose} act={act} label={t.dumpDo} disabled={chosen.length === 0}>
      <Text size="sm">{t.dumpHelp}</Text>
      <MultiSelect
        label={t.dumpKinds}
        data={Object.keys(kinds).map((value) => ({ value, label: t.kindNames[value] ?? value }))}
        value={chosen}
        onChange={setChosen}
        searchable
        clearable
        hidePickedOptions
      />
      {act.data && (
        <Alert color="yellow" role="status">
          {t.dumped(act.data.n)} {t.dumpDenied(act.data.denied.join(', '))}
        </Alert>
      )}
    </FormDialog>
  )
}

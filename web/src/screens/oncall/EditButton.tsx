import { Button } from '@mantine/core'
import { useState } from 'react'
import type { Definition, Kind } from '../../api/definitions'
import { useRights } from '../../app/rights'
import { DefinitionEditor } from '../../editor'
import { oncall as t } from '../../text/oncall'

/** Opens the editor of a definition. */
export function EditButton({ kind, definition }: { kind: Kind; definition: Definition }) {
  const [opened, setOpened] = useState(false)
  const rights = useRights(definition.metadata?.namespace ?? '')
  const cannot = rights.why('update', kind.role)
  return (
    <>
      <Button size="xs" variant="default" disabled={cannot !== undefined} title={cannot} onClick={() => setOpened(true)}>
        {t.edit}
      </Button>
      {opened && <DefinitionEditor kind={kind} definition={definition} onClose={() => setOpened(false)} />}
    </>
  )
}

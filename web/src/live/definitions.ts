import { useQueryClient } from '@tanstack/react-query'
import { useEffect } from 'react'
import { useApp } from '../app/context'

/** The key of what the page knows of a kind of definitions, for example "silenced"; changes of the kind make it ask anew. */
export const definitionsKey = (kind: string, ...rest: unknown[]) => ['definitions', kind, ...rest]

/** Changes in quick succession, of an import for example, make the page ask once. In ms. */
const together = 300

interface Change {
  kind: string
}

/** Makes all lists of definitions ask anew when one of theirs is written or deleted, here or elsewhere. */
export function useDefinitionChanges(namespace: string): void {
  const { live } = useApp()
  const client = useQueryClient()
  useEffect(() => {
    const changed = new Set<string>()
    let all = false
    let lost = false
    let timer: ReturnType<typeof setTimeout> | undefined
    const refresh = () => {
      timer = undefined
      void client.invalidateQueries({
        predicate: ({ queryKey: [what, kind] }) => what === 'definitions' && (all || changed.has(String(kind))),
      })
      changed.clear()
      all = false
    }
    const soon = () => {
      timer ??= setTimeout(refresh, together)
    }
    const close = live.follow({
      path: `/api/lapwing/v1/namespaces/${encodeURIComponent(namespace)}/config/stream`,
      onMessage: ({ type, data }) => {
        if (type === 'change') changed.add((JSON.parse(data) as Change).kind)
        else if (type === 'reset' || (type === 'synced' && lost)) all = true
        else return
        lost = false
        soon()
      },
      onState: ({ phase }) => {
        if (phase === 'waiting') lost = true
      },
    })
    return () => {
      clearTimeout(timer)
      close()
    }
  }, [live, client, namespace])
}

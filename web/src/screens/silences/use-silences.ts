import { useQuery } from '@tanstack/react-query'
import { refusal } from '../../api/client'
import { kinds, warningsOf, type Definition } from '../../api/definitions'
import type { SilencePreview, Silenced } from '../../api/types'
import { useApp } from '../../app/context'
import { definitionsKey } from '../../live/definitions'
import { keyOf } from './model'

/** What the events do is not pushed, so it is asked for again so often, in ms. */
const again = 30_000

/** All silences of a namespace. Those that end by themselves leave the list, so it is asked for now and then, too. */
export function useSilences(namespace: string) {
  const { definitions } = useApp()
  return useQuery({
    queryKey: definitionsKey('silenced', namespace),
    queryFn: () => definitions.list<Silenced & Definition>(kinds.silenced, namespace) as Promise<Silenced[]>,
    refetchInterval: 10_000,
  })
}

export interface Previewed extends SilencePreview {
  /** What the server warns of, a misspelt name for example. */
  warnings: string[]
}

/** What a silence does now, or would do; with times, when it applies in them. */
export function usePreview(silence: Silenced | undefined, times?: { since: number; until: number }) {
  const { preview } = usePreviews()
  return useQuery({
    queryKey: definitionsKey('silenced', 'preview', silence === undefined ? '' : [keyOf(silence), silence], times),
    enabled: silence !== undefined,
    retry: false,
    refetchInterval: again,
    staleTime: again / 2,
    queryFn: () => preview(silence as Silenced, times),
  })
}

/** Asks for previews outside of a hook. */
export function usePreviews() {
  const { api } = useApp()
  const preview = async (silence: Silenced, times?: { since: number; until: number }): Promise<Previewed> => {
    const { data, error, response } = await api.POST('/api/lapwing/v1/namespaces/{namespace}/silenced/preview', {
      params: {
        path: { namespace: silence.metadata?.namespace ?? '' },
        query: times ? { since: String(times.since), until: String(times.until) } : {},
      },
      body: silence,
    })
    if (!data) throw refusal(response.status, error)
    return { ...data, warnings: warningsOf(response.headers.get('Warning')) }
  }
  return { preview }
}

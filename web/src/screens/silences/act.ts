import { useMutation } from '@tanstack/react-query'
import { kinds, type Definition } from '../../api/definitions'
import type { Silenced } from '../../api/types'
import { useApp } from '../../app/context'
import { clock } from '../../app/time'
import { usePreferences } from '../../app/preferences'
import { silences as t } from '../../text/silences'
import { done, failed } from '../../widgets/toast'
import { again, extended } from './model'

/** What can be done with silences that are there. */
export function useActs() {
  const { definitions } = useApp()
  const { time } = usePreferences()
  const extend = useMutation({
    mutationFn: async ({ silence, by }: { silence: Silenced; by: number }) => {
      const longer = extended(silence, by, Date.now() / 1000)
      await definitions.put(kinds.silenced, longer as Definition)
      return longer
    },
    onSuccess: (longer, { silence }) =>
      done(t.extended(silence.metadata?.name ?? '', clock(longer.expire_at ?? 0, time, false)), () =>
        definitions.put(kinds.silenced, silence as Definition),
      ),
    onError: (err) => failed(t.hour, err),
  })
  const end = useMutation({
    mutationFn: async (list: readonly Silenced[]) => {
      const results = await Promise.allSettled(
        list.map(({ metadata }) => definitions.delete(kinds.silenced, metadata?.namespace ?? '', metadata?.name ?? '')),
      )
      const over = list.filter((_, i) => results[i]?.status === 'fulfilled')
      const refused = results.find((one) => one.status === 'rejected')
      return { over, ...(refused ? { error: refused.reason as unknown } : {}) }
    },
    onSuccess: ({ over, error }) => {
      if (error !== undefined) failed(t.someFailed, error)
      if (over.length === 0) return
      done(t.ended(over.length, over[0]?.metadata?.name ?? ''), () =>
        Promise.all(over.map((silence) => definitions.create(kinds.silenced, again(silence) as Definition))),
      )
    },
  })
  return { extend, end }
}

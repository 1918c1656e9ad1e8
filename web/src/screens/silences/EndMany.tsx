import { Alert, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { kinds } from '../../api/definitions'
import type { Silenced } from '../../api/types'
import { useApp } from '../../app/context'
import { text } from '../../text'
import { silences as t } from '../../text/silences'
import { FormDialog } from '../../widgets/FormDialog'
import { useActs } from './act'
import { keyOf, subjectOf } from './model'
import css from './SilencesScreen.module.css'
import { usePreviews } from './use-silences'

/** Ends silences, after it has shown what they hold back and what the server would refuse. */
export function EndMany({ silences, onClose }: { silences: readonly Silenced[]; onClose: (finished: boolean) => void }) {
  const { definitions } = useApp()
  const { preview } = usePreviews()
  const { end } = useActs()
  const would = useQuery({
    queryKey: ['end-silences', silences.map(keyOf)],
    retry: false,
    queryFn: async () => {
      const dry = await Promise.allSettled(
        silences.map(({ metadata }) => definitions.delete(kinds.silenced, metadata?.namespace ?? '', metadata?.name ?? '', true)),
      )
      const effects = await Promise.all(silences.map((one) => preview(one)))
      return {
        refused: dry.flatMap((one) =>
          one.status === 'rejected' ? [one.reason instanceof Error ? one.reason.message : String(one.reason)] : [],
        ),
        events: effects.reduce((n, one) => n + one.events, 0),
        failing: effects.reduce((n, one) => n + one.failing, 0),
      }
    },
  })
  return (
    <FormDialog
      opened
      danger
      title={t.endMany(silences.length)}
      label={t.endNow}
      onClose={() => onClose(false)}
      disabled={would.isPending || (would.data?.refused.length ?? 0) === silences.length}
      act={{ ...end, mutate: () => end.mutate(silences, { onSuccess: () => onClose(true) }) }}
    >
      <ul className={css.hitlist}>
        {silences.slice(0, 50).map((one) => (
          <li key={keyOf(one)}>
            {t.what(subjectOf(one))}
            <small>{one.reason}</small>
          </li>
        ))}
      </ul>
      <Text size="sm">{t.endHelp}</Text>
      <Text size="sm" c="dimmed" role="status">
        {would.error ? would.error.message : would.data ? t.endWould(would.data.events, would.data.failing) : text.act.looking}
      </Text>
      {would.data && would.data.refused.length > 0 && (
        <Alert color="red">
          {t.cannotEnd(would.data.refused.length)} {would.data.refused[0]}
        </Alert>
      )}
    </FormDialog>
  )
}

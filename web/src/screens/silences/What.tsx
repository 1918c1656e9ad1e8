import type { Silenced } from '../../api/types'
import { silences as t } from '../../text/silences'
import { keyOf, subjectOf } from './model'
import css from './SilencesScreen.module.css'

/** What a silence is about. */
export function What({ silence, namespace }: { silence: Silenced; namespace: boolean }) {
  const words = t.what(subjectOf(silence))
  return (
    <span className={css.what} title={`${words}\n${keyOf(silence)}`}>
      <b>{words}</b>
      {namespace && <small>{silence.metadata?.namespace}</small>}
    </span>
  )
}

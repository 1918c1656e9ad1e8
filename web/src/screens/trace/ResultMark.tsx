import { Icon, StatusMark } from '../../widgets/icons'
import type { VerdictMark } from './present'

/** The shape of a verdict, beside its word. */
export function ResultMark({ mark, size }: { mark: VerdictMark; size: number }) {
  return mark === 'ended' ? <Icon name="ended" size={size} /> : <StatusMark mark={mark} size={size} />
}

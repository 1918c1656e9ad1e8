import type { ClusterStatus, MemberStatus } from '../../api/types'
import { clusterText as t } from '../../text/cluster'
import type { Mark } from '../../widgets/icons'

/** How a backend is, by a mark and a word. */
export function stateOf(member: MemberStatus): { mark: Mark; word: string } {
  if (!member.up) return { mark: 'critical', word: t.states.away(member.away_seconds ?? 0) }
  if (member.leaving) return { mark: 'warning', word: t.states.leaving }
  if (!member.leased) return { mark: 'critical', word: t.states.alone }
  if (!member.ready) return { mark: 'warning', word: t.states.waiting }
  if (member.draining) return { mark: 'warning', word: t.states.draining }
  return { mark: 'ok', word: t.states.up }
}

export const sum = (numbers: readonly number[] | null | undefined): number => (numbers ?? []).reduce((all, n) => all + n, 0)

export const upOf = ({ members }: ClusterStatus): MemberStatus[] => (members ?? []).filter(({ up }) => up)

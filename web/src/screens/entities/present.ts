import type { EntityGroup, EntityRow, StateChange } from '../../api/types'
import type { Mark } from '../../widgets/icons'

/** Classes of the worst event of an entity, in the order of the map's digits. */
export const classes = ['critical', 'warning', 'unknown', 'silenced', 'ok', 'none'] as const
export type Worst = (typeof classes)[number]

/** States of an agent; proxy is for entities without one. */
export const agents = ['connected', 'late', 'gone', 'proxy'] as const
export type Agent = (typeof agents)[number]

export const isMark = (worst: string | undefined): worst is Mark =>
  worst === 'critical' || worst === 'warning' || worst === 'unknown' || worst === 'ok'

export const agentOf = ({ agent }: Pick<EntityRow, 'agent'>): Agent => agents.find((one) => one === agent) ?? 'proxy'

/** Events of an entity that fail and are not silenced. */
export const failingOf = ({ events }: Pick<EntityRow, 'events'>): number => (events ? events.total - events.ok : 0)

/** Agents by version, the newest first, and how many have it. */
export interface Skew {
  newest: string
  versions: number
  /** Share of agents with the newest one, in percent. */
  share: number
}

const collator = new Intl.Collator('en', { numeric: true })

const numbers = (version: string) => version.replace(/^v/, '')

/** Newest version first; those without one last. */
export const newerFirst = (a: EntityGroup, b: EntityGroup): number =>
  a.value === '' || b.value === '' ? Number(a.value === '') - Number(b.value === '') : collator.compare(numbers(b.value), numbers(a.value))

export function skewOf(groups: readonly EntityGroup[]): Skew | undefined {
  const known = groups.filter(({ value }) => value !== '').sort(newerFirst)
  const [newest] = known
  if (!newest) return undefined
  const all = known.reduce((n, { counts }) => n + counts.total, 0)
  return { newest: newest.value, versions: known.length, share: all === 0 ? 0 : Math.floor((100 * newest.counts.total) / all) }
}

/** A time in which an agent was not heard of. */
export interface Gap {
  from: number
  /** undefined while it lasts. */
  until: number | undefined
}

/** The gaps in the keepalives, newest first, from the changes of the check's state, newest first. */
export function gapsOf(changes: readonly Pick<StateChange, 'time' | 'status' | 'state'>[]): Gap[] {
  const gaps: Gap[] = []
  let open: Gap | undefined // the gap that an older change may begin earlier: it had been late before it was gone
  let until: number | undefined
  for (const { time, status, state } of changes) {
    const at = Date.parse(time) / 1000
    if (status === 0 || state === 'deleted') {
      open = undefined
      until = at
    } else if (open) {
      open.from = at
    } else {
      open = { from: at, until }
      gaps.push(open)
    }
  }
  return gaps
}

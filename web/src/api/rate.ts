import type { ClusterStatus } from './types'

/** What all backends had received at a moment. */
export interface Sample {
  /** In ms. */
  at: number
  /** By process of a member: one that starts again counts from 0. */
  received: Readonly<Record<string, number>>
}

/** Samples that are older count no more, unless there is no newer one; in ms. */
const most = 30_000
/** From which time on there is a rate, in ms: numbers of other members are up to half a second old. */
const least = 4000

/** The samples with a new one. A member that came, left or started again makes all before it useless. */
export function withSample(samples: readonly Sample[], { members }: ClusterStatus, at: number): readonly Sample[] {
  const up = (members ?? []).filter((member) => member.up)
  // A member of an earlier release does not tell: without it, a rate would be too low.
  if (up.some(({ received }) => received === undefined)) return []
  const received = Object.fromEntries(up.map(({ id, started, received }) => [`${id} ${started}`, received ?? 0]))
  const last = samples.at(-1)
  const same = last !== undefined && Object.keys(last.received).join() === Object.keys(received).join()
  return [...(same ? samples.filter((one) => one === last || at - one.at <= most) : []), { at, received }]
}

/** Events a second from the first to the last sample; undefined if they are too close. */
export function rateOf(samples: readonly Sample[]): number | undefined {
  const [first, last] = [samples[0], samples.at(-1)]
  if (!first || !last || last.at - first.at < least) return undefined
  const total = ({ received }: Sample) => Object.values(received).reduce((sum, n) => sum + n, 0)
  return ((total(last) - total(first)) * 1000) / (last.at - first.at)
}

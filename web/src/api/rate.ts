import type { ClusterStatus } from './types'

/** What all backends had received at a moment. */
export interface Sample {
  /** In ms. */
  at: number
  /** By member. */
  received: Readonly<Record<string, number>>
}

/** Samples that are older count no more, unless there is no newer one; in ms. Numbers are up to half a second old. */
const span = 30_000

/** The samples with a new one. A member that came, left or began anew makes all before it useless. */
export function withSample(samples: readonly Sample[], { members }: ClusterStatus, at: number): readonly Sample[] {
  const received = Object.fromEntries((members ?? []).filter(({ up }) => up).map(({ id, received }) => [id, received]))
  const last = samples.at(-1)?.received
  const names = Object.keys(received)
  const goesOn =
    last !== undefined &&
    names.length === Object.keys(last).length &&
    names.every((name) => (received[name] ?? 0) >= (last[name] ?? Infinity))
  return [...(goesOn ? samples.filter((one) => one === samples.at(-1) || at - one.at <= span) : []), { at, received }]
}

/** Events a second from the first to the last sample; undefined if there is only one. */
export function rateOf(samples: readonly Sample[]): number | undefined {
  const [first, last] = [samples[0], samples.at(-1)]
  if (!first || !last || first === last) return undefined
  const total = ({ received }: Sample) => Object.values(received).reduce((sum, n) => sum + n, 0)
  return ((total(last) - total(first)) * 1000) / (last.at - first.at)
}

import type { DeadLetter, Delivery } from '../../api/types'
import type { Mark } from '../../widgets/icons'

/** How something went, as a shape. What ends a delivery by intent, as a filter does, is neither good nor bad. */
export type VerdictMark = Mark | 'ended'

const marks: Record<string, VerdictMark> = {
  delivered: 'ok',
  waiting: 'warning',
  held: 'warning',
  grouped: 'warning',
  dead: 'critical',
  dropped: 'critical',
  failed: 'critical',
  no_handler: 'critical',
  filtered: 'ended',
  silenced: 'ended',
  inhibited: 'ended',
  folded: 'ended',
  pass: 'ok',
  ok: 'ok',
  deny: 'ended',
  error: 'critical',
  timeout: 'critical',
}

/** The shape beside a verdict or the result of a step. */
export function verdictMark(verdict: string | undefined): VerdictMark {
  return marks[verdict ?? ''] ?? 'unknown'
}

/** The time that a delivery spans, in Unix ms. */
export interface Axis {
  from: number
  to: number
}

/** From the receipt of the event to the last that is known, with the next attempt. */
export function axisOf({ received, updated, attempts }: Pick<Delivery, 'received' | 'updated' | 'attempts'>): Axis {
  const times = (attempts ?? []).flatMap(({ at, millis, next = 0 }) => [at, at + millis, next])
  const known = [received ?? 0, updated, ...times].filter((at) => at > 0)
  const from = Math.min(...known)
  return { from, to: Math.max(from + 1, ...known) }
}

/** The place of something on an axis, in percent; a short one is still visible. */
export function barOn({ from, to }: Axis, at: number, millis: number): { left: number; width: number } {
  const share = (ms: number) => Math.max(0, Math.min(100, (100 * ms) / (to - from)))
  const width = Math.max(1.5, share(millis))
  return { left: Math.min(share(at - from), 100 - width), width }
}

/** Where a delivery went: its handler, and the pipeline and workflow if it came that way. */
export function routeOf({ pipeline = '', workflow = '' }: Pick<Delivery, 'pipeline' | 'workflow'>): string {
  return [pipeline, workflow].filter((part) => part !== '').join(' › ')
}

/** The dead letter of a delivery: of the same handler, with the same first attempt. */
export function letterOf(
  letters: readonly DeadLetter[],
  { handler, attempts }: Pick<Delivery, 'handler' | 'attempts'>,
): DeadLetter | undefined {
  const first = attempts?.[0]?.at
  return letters.find((letter) => letter.handler === handler && letter.first === first)
}

/** The definitions that deliveries used, each as plural/name, without built-in ones. */
export function usedBy(deliveries: readonly Delivery[]): string[] {
  const used = new Set<string>()
  for (const { pipeline, handler, steps } of deliveries) {
    if (pipeline) used.add(`pipelines/${pipeline}`)
    if (handler) used.add(`handlers/${handler}`)
    for (const { kind, name } of steps ?? []) {
      if (!name || builtIn.has(name)) continue
      if (kind === 'filter') used.add(`filters/${name}`)
      if (kind === 'mutator') used.add(`mutators/${name}`)
    }
  }
  return [...used]
}

/** Filters and mutators that need no definition. */
export const builtIn: ReadonlySet<string> = new Set([
  'is_incident',
  'not_silenced',
  'has_metrics',
  'fatigue_check',
  'allow_list',
  'json',
  'only_check_output',
])

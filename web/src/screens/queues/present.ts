import type { DeadLetter, ObjectMeta, Waiting } from '../../api/types'

/** A handler with what waits for it. */
export interface HandlerRow {
  namespace: string
  name: string
  /** Undefined if nothing waits, fails or was given up. */
  waiting: Waiting | undefined
  letters: number
}

/** All handlers: those that are defined, and those that only have deliveries or dead letters left. */
export function handlerRows(
  defined: readonly { metadata?: ObjectMeta | undefined }[],
  waiting: readonly Waiting[],
  letters: readonly DeadLetter[],
): HandlerRow[] {
  const rows = new Map<string, HandlerRow>()
  const row = (namespace: string, name: string) => {
    const key = `${namespace}/${name}`
    const known = rows.get(key) ?? { namespace, name, waiting: undefined, letters: 0 }
    rows.set(key, known)
    return known
  }
  for (const { metadata } of defined) row(metadata?.namespace ?? '', metadata?.name ?? '')
  for (const one of waiting) row(one.namespace, one.handler).waiting = one
  for (const { namespace, handler } of letters) row(namespace, handler).letters++
  return [...rows.values()].sort((a, b) => rank(b) - rank(a) || depthOf(b.waiting) - depthOf(a.waiting) || a.name.localeCompare(b.name))
}

export type HandlerState = 'failing' | 'waiting' | 'running' | 'idle'

export function stateOf(waiting: Waiting | undefined): HandlerState {
  if ((waiting?.failing_since ?? 0) > 0) return 'failing'
  if ((waiting?.retrying ?? 0) > 0) return 'waiting'
  return (waiting?.running ?? 0) > 0 || depthOf(waiting) > 0 ? 'running' : 'idle'
}

/** What needs a look comes first. */
function rank({ waiting, letters }: HandlerRow): number {
  return { failing: 3, waiting: 2, running: 0, idle: 0 }[stateOf(waiting)] + (letters > 0 ? 1 : 0)
}

/** How many deliveries wait. */
export function depthOf(waiting: Waiting | undefined): number {
  return waiting ? waiting.memory.total + waiting.disk.total + waiting.parked.total : 0
}

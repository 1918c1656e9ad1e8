import type { Delivery, Handler, Pipeline } from '../../api/types'
import { builtIn } from '../trace/present'
import type { PipelinesTab } from './search'

/** A filter, mutator or handler in a workflow. */
export interface Node {
  kind: Exclude<PipelinesTab, 'pipelines'>
  name: string
  /** It needs no definition. */
  builtIn: boolean
  missing: boolean
}

/** A way from an event to a handler. */
export interface Flow {
  /** "" for that of a handler itself. */
  workflow: string
  filters: Node[]
  mutator: Node | undefined
  handler: Node | undefined
}

/** The names that are defined in a namespace; undefined while the page does not know. */
export type Known = Record<Node['kind'], ReadonlySet<string>> | undefined

const node = (kind: Node['kind'], name: string, known: Known): Node => ({
  kind,
  name,
  builtIn: kind !== 'handlers' && builtIn.has(name),
  missing: known !== undefined && !(kind !== 'handlers' && builtIn.has(name)) && !known[kind].has(name),
})

interface Reference {
  name?: string
}

/** The workflows of a pipeline. */
export function flowsOf({ workflows }: Pick<Pipeline, 'workflows'>, known: Known): Flow[] {
  const one = (kind: Node['kind'], of: Reference | null | undefined) => (of?.name ? node(kind, of.name, known) : undefined)
  return (workflows ?? []).map(({ name = '', filters, mutator, handler }) => ({
    workflow: name,
    filters: (filters ?? []).map((filter) => one('filters', filter)).filter((filter) => filter !== undefined),
    mutator: one('mutators', mutator),
    handler: one('handlers', handler),
  }))
}

/** The way of an event that names a handler, and those of its handlers for a set. */
export function flowOfHandler({ metadata, filters, mutator, type, handlers }: Handler, known: Known): Flow[] {
  if (type === 'set') {
    return (handlers ?? []).map((name) => ({ workflow: '', filters: [], mutator: undefined, handler: node('handlers', name, known) }))
  }
  return [
    {
      workflow: '',
      filters: (filters ?? []).map((name) => node('filters', name, known)),
      mutator: mutator ? node('mutators', mutator, known) : undefined,
      handler: node('handlers', metadata?.name ?? '', known),
    },
  ]
}

/** How many of the names in workflows are not defined. */
export function missingIn(flows: readonly Flow[]): number {
  return flows.flatMap(({ filters, mutator, handler }) => [...filters, mutator, handler]).filter((one) => one?.missing).length
}

export type NodeState = 'pass' | 'deny' | 'error' | 'skipped' | 'reached'

/** What a dry run did at each part of a workflow. */
export function statesOf(
  { filters, mutator }: Flow,
  { steps, verdict }: Pick<Delivery, 'steps' | 'verdict'>,
): { filters: NodeState[]; mutator: NodeState | undefined; handler: NodeState } {
  const stepOf = (kind: string, name: string) => (steps ?? []).find((step) => step.kind === kind && step.name === name)
  const stateOf = (kind: string, name: string): NodeState => {
    const step = stepOf(kind, name)
    if (!step) return 'skipped'
    return step.verdict === 'pass' || step.verdict === 'deny' || step.verdict === 'error' ? step.verdict : 'skipped'
  }
  const reached = !['filtered', 'silenced', 'inhibited', 'failed', 'no_handler', 'dropped'].includes(verdict)
  return {
    filters: filters.map(({ name }) => stateOf('filter', name)),
    mutator: mutator && stateOf('mutator', mutator.name),
    handler: reached ? 'reached' : 'skipped',
  }
}

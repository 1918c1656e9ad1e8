import type { Aggregate, SensuEvent } from '../../api/types'

/** Labels and the annotation of the events that aggregates make. */
const aggregateLabel = 'lapwing.io/aggregate'
const groupLabel = 'lapwing.io/aggregate-group'

/** Selects the events that aggregates make. */
export const anyResult = `${aggregateLabel} =~ .`
export const resultOf = (name: string) => `${aggregateLabel} == ${JSON.stringify(name)}`

/** What an aggregate found in one of its groups. */
export interface Result {
  entity: string
  check: string
  group: string
  status: number
  failing: number
  members: number
  output: string
}

export interface Service {
  /** namespace/name. */
  key: string
  namespace: string
  name: string
  definition: Aggregate
  /** Worst first. */
  results: Result[]
}

/** The service whose result an event is; undefined for an event of a check. */
export function serviceOf(event: SensuEvent): string | undefined {
  return event.check?.metadata?.labels?.[aggregateLabel]
}

/** Joins aggregates with the events that they made. */
export function servicesOf(aggregates: readonly Aggregate[], events: readonly SensuEvent[]): Service[] {
  const byService = new Map<string, Result[]>()
  for (const event of events) {
    const name = serviceOf(event)
    if (name === undefined) continue
    const key = `${event.entity?.metadata?.namespace ?? ''}/${name}`
    const results = byService.get(key) ?? []
    results.push(resultIn(event))
    byService.set(key, results)
  }
  return aggregates.map((definition) => {
    const { namespace = '', name = '' } = definition.metadata ?? {}
    const key = `${namespace}/${name}`
    const results = (byService.get(key) ?? []).sort((a, b) => rank(b.status) - rank(a.status) || a.group.localeCompare(b.group))
    return { key, namespace, name, definition, results }
  })
}

function resultIn({ check, entity, metadata }: SensuEvent): Result {
  const { failing = 0, members = 0 } = figures(metadata?.annotations?.[aggregateLabel])
  return {
    entity: entity?.metadata?.name ?? '',
    check: check?.metadata?.name ?? '',
    group: check?.metadata?.labels?.[groupLabel] ?? '',
    status: check?.status ?? 0,
    failing,
    members,
    output: check?.output ?? '',
  }
}

function figures(json: string | undefined): { failing?: number; members?: number } {
  try {
    return JSON.parse(json ?? '{}') as { failing?: number; members?: number }
  } catch {
    return {}
  }
}

/** Critical is worse than warning, and that than a status that is unknown. */
export const rank = (status: number) => (status === 0 ? 0 : status === 2 ? 3 : status === 1 ? 2 : 1)

/** The worst status of a service; undefined before its first evaluation. */
export const statusOf = ({ results }: Service): number | undefined => results[0]?.status

/** Services whose failing result names the result of another one among the members that fail. */
export function impactOf(service: Service, all: readonly Service[]): Service[] {
  const names = new Set(service.results.map(({ entity, check }) => `${entity}/${check}`))
  return all.filter(
    (other) =>
      other.key !== service.key &&
      other.namespace === service.namespace &&
      other.results.some(
        ({ status, output }) =>
          status !== 0 &&
          output
            .split('\n')
            .slice(1)
            .some((line) => names.has(line.trim())),
      ),
  )
}

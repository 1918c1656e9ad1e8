import { refusal } from '../../api/client'
import type { BulkReport, BulkRequest } from '../../api/types'
import { quoted } from '../../search/query'

/** Events to act on: those that were ticked, or all that the list has. */
export type Target =
  | { kind: 'picked'; keys: readonly string[] }
  | { kind: 'matching'; namespace: string; /** With the state of the events. */ selector: string; /** What the user searched for. */ search: string; total: number }

export function sizeOf(target: Target): number {
  return target.kind === 'picked' ? target.keys.length : target.total
}

/** Sorts into groups. Map.groupBy is too new for the browsers that people have. */
export function groupBy<T>(list: readonly T[], of: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>()
  for (const one of list) {
    const group = groups.get(of(one))
    if (group) group.push(one)
    else groups.set(of(one), [one])
  }
  return groups
}

/** The condition for some events of one namespace, by their keys namespace/entity/check. */
export function selectorOf(keys: readonly string[]): string {
  const entities = groupBy(keys, (key) => key.split('/')[1] ?? '')
  return [...entities]
    .map(([entity, same]) => {
      const names = same.map((key) => quoted(key.split('/')[2] ?? ''))
      return `event.entity.name == ${quoted(entity)} && event.check.name in [${names.join(', ')}]`
    })
    .map((term) => (entities.size > 1 ? `(${term})` : term))
    .join(' || ')
}

/** Requests, each for a namespace, that act on a target together. */
export function requestsOf(target: Target): { namespace: string; field_selector: string; all: boolean }[] {
  if (target.kind === 'matching') {
    const { namespace, selector } = target
    return [{ namespace, field_selector: selector, all: selector === '' }]
  }
  const byNamespace = groupBy(target.keys, (key) => key.split('/')[0] ?? '')
  return [...byNamespace].map(([namespace, keys]) => ({ namespace, field_selector: selectorOf(keys), all: false }))
}

/** Adds reports of several requests. */
export function together(reports: readonly BulkReport[]): BulkReport {
  const sum = (of: (report: BulkReport) => number) => reports.reduce((n, report) => n + of(report), 0)
  return {
    resource: reports[0]?.resource ?? '', action: reports[0]?.action ?? '', dry_run: reports[0]?.dry_run ?? false,
    matched: sum((r) => r.matched), done: sum((r) => r.done), denied: sum((r) => r.denied), failed: sum((r) => r.failed),
    finished: reports.every((report) => report.finished), objects: reports.flatMap((report) => report.objects ?? []),
  }
}

/** The server may find a tenth more than in the dry run, for an incident grows; then it does nothing. */
const slack = 1.1

/** Acts on all events of a target, and reports how far it is. */
export async function act(
  fetch: typeof globalThis.fetch,
  target: Target,
  action: Pick<BulkRequest, 'action' | 'reason' | 'expire'>,
  options: { dry: boolean; matched?: number; onProgress?: (report: BulkReport) => void },
): Promise<BulkReport> {
  const reports: BulkReport[] = []
  for (const { namespace, field_selector, all } of requestsOf(target)) {
    const body: BulkRequest = {
      resource: 'events', ...action, field_selector, all, dry_run: options.dry,
      ...(options.matched === undefined ? {} : { at_most: Math.ceil(options.matched * slack) }),
    }
    const last = await run(fetch, namespace, body, (report) => options.onProgress?.(together([...reports, report])))
    reports.push(last)
  }
  return together(reports)
}

/** Reads the reports of a request, one a line, and returns the last one. */
async function run(fetch: typeof globalThis.fetch, namespace: string, body: BulkRequest, onReport: (report: BulkReport) => void): Promise<BulkReport> {
  const response = await fetch(`/api/lapwing/v1/namespaces/${encodeURIComponent(namespace)}/bulk`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'application/x-ndjson' },
    body: JSON.stringify(body),
  })
  if (!response.ok || !response.body) {
    const said = await response.text()
    let parsed: unknown = said
    try {
      parsed = JSON.parse(said)
    } catch {
      // the text says it
    }
    throw refusal(response.status, parsed)
  }
  let last: BulkReport | undefined
  for await (const line of lines(response.body)) {
    last = JSON.parse(line) as BulkReport
    onReport(last)
  }
  if (!last?.finished) throw new Error('the connection was lost before the end; look at the list for what was done')
  return last
}

export async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    rest += decoder.decode(value, { stream: !done })
    const parts = rest.split('\n')
    rest = done ? '' : (parts.pop() ?? '')
    for (const part of parts) if (part.trim() !== '') yield part
    if (done) return
  }
}

import { refusal } from './client'
import type { BulkReport, BulkRequest } from './types'

/** Adds reports of several requests. */
function together(reports: readonly BulkReport[]): BulkReport {
  const sum = (of: (report: BulkReport) => number) => reports.reduce((n, report) => n + of(report), 0)
  return {
    resource: reports[0]?.resource ?? '',
    action: reports[0]?.action ?? '',
    dry_run: reports[0]?.dry_run ?? false,
    matched: sum((r) => r.matched),
    done: sum((r) => r.done),
    denied: sum((r) => r.denied),
    failed: sum((r) => r.failed),
    finished: reports.every((report) => report.finished),
    connected: sum((r) => r.connected ?? 0),
    objects: reports.flatMap((report) => report.objects ?? []),
  }
}

/** The server may find a tenth more than in the dry run, for an incident grows; then it does nothing. */
const slack = 1.1

/** Objects of a namespace to act on. */
export interface Selection {
  namespace: string
  field_selector: string
  /** There is no selector, and all are meant. */
  all: boolean
}

export interface BulkOptions {
  /** Only ask what would be done. */
  dry: boolean
  /** How many the dry run found. */
  matched?: number
  onProgress?: (report: BulkReport) => void
}

/** Acts on selections, one after the other, and reports how far it is. */
export async function actOn(
  fetch: typeof globalThis.fetch,
  selections: readonly Selection[],
  action: Pick<BulkRequest, 'resource' | 'action' | 'reason' | 'expire' | 'labels'>,
  options: BulkOptions,
): Promise<BulkReport> {
  const reports: BulkReport[] = []
  for (const { namespace, field_selector, all } of selections) {
    const body: BulkRequest = {
      ...action,
      field_selector,
      all,
      dry_run: options.dry,
      ...(options.matched === undefined ? {} : { at_most: Math.ceil(options.matched * slack) }),
    }
    const last = await run(fetch, namespace, body, (report) => options.onProgress?.(together([...reports, report])))
    reports.push(last)
  }
  return together(reports)
}

/** Reads the reports of a request, one a line, and returns the last one. */
async function run(
  fetch: typeof globalThis.fetch,
  namespace: string,
  body: BulkRequest,
  onReport: (report: BulkReport) => void,
): Promise<BulkReport> {
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

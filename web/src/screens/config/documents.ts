import { parseAllDocuments } from 'yaml'
import { kinds, unwrapDefinition, type Definition, type Kind, type Wrapped } from '../../api/definitions'
import { configText as t } from '../../text/config'

/** A document of a file: a definition, or why it is none. */
export type Document =
  { place: number; kind: Kind; definition: Definition } | { place: number; type: string; name: string; problem: string }

/** Reads YAML or JSON with any number of documents. Those without a namespace are of the given one. */
export function read(text: string, namespace: string): Document[] {
  const parsed = parseAllDocuments(text, { prettyErrors: true })
  const documents = Array.isArray(parsed) ? parsed : [parsed]
  const out: Document[] = []
  for (const document of documents) {
    const problem = document.errors[0]
    const values: unknown[] = problem ? [undefined] : [document.toJS() as unknown].flat()
    for (const value of values) {
      if (value === null && !problem) continue // nothing between two separators
      out.push(documentOf(value, out.length + 1, namespace, problem?.message.split('\n')[0]))
    }
  }
  return out
}

function documentOf(value: unknown, place: number, namespace: string, problem: string | undefined): Document {
  const { type = '', metadata, spec, api_version } = (typeof value === 'object' && value !== null ? value : {}) as Partial<Wrapped>
  const name = metadata?.name ?? ''
  const bad = (problem: string): Document => ({ place, type, name, problem })
  if (problem !== undefined) return bad(problem)
  if (type === '' || name === '') return bad(t.noType)
  const kind = kindOf(type, api_version)
  if (!kind) return bad(t.unknownKind(type))
  const meta = { ...metadata, ...(kind.namespaced ? { namespace: metadata?.namespace || namespace } : {}) }
  return { place, kind, definition: unwrapDefinition({ type, api_version: kind.group, metadata: meta, spec: spec ?? {} }) }
}

function kindOf(type: string, group: string | undefined): Kind | undefined {
  return Object.values(kinds).find((kind) => kind.type === type && (group === undefined || group === '' || group === kind.group))
}

const order = Object.values(kinds) as Kind[]

/** The order of writing: kinds that others name first, and within a kind as in the file. */
export const rank = (kind: Kind): number => {
  const last = ['checks', 'metricchecks', 'aggregates', 'silenced', 'clusterrolebindings', 'rolebindings'].indexOf(kind.plural)
  const middle = ['handlers', 'pipelines', 'fallbackPipeline'].indexOf(kind.plural)
  return last >= 0 ? 200 + last : middle >= 0 ? 100 + middle : order.findIndex(({ plural }) => plural === kind.plural)
}

/** Fields that the server sets or fills in, so that they do not count as changes. */
const ownFields = ['created_by']

/** What a write of a definition leaves: the fields it does not name keep the server's defaults, so they are compared only where named. */
export function merged(stored: Definition, wanted: Definition): Definition {
  const out: Definition = {}
  for (const key of Object.keys(stored)) if (key in wanted || isEmpty(stored[key])) out[key] = key in wanted ? wanted[key] : stored[key]
  for (const key of Object.keys(wanted)) out[key] = wanted[key]
  const meta: Record<string, unknown> = { ...wanted.metadata }
  for (const key of ownFields) {
    const value = (stored.metadata as Record<string, unknown> | undefined)?.[key]
    if (value !== undefined) meta[key] = value
  }
  out.metadata = meta as NonNullable<Definition['metadata']>
  return out
}

const isEmpty = (value: unknown): boolean =>
  value === null || value === undefined || value === '' || value === 0 || value === false || (Array.isArray(value) && value.length === 0)

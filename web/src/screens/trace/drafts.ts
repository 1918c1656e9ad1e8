import { parseAllDocuments } from 'yaml'
import { unwrapDefinition, type Definition, type Wrapped } from '../../api/definitions'
import { text } from '../../text/trace'

/** Drafts of definitions by the field of a simulation that takes them. */
export interface Drafts {
  handlers: Definition[]
  filters: Definition[]
  mutators: Definition[]
  pipelines: Definition[]
}

const fields: Record<string, keyof Drafts> = { Handler: 'handlers', EventFilter: 'filters', Mutator: 'mutators', Pipeline: 'pipelines' }

/** Reads drafts from YAML documents. It throws an error that names the first mistake. */
export function readDrafts(typed: string, namespace: string): Drafts {
  const drafts: Drafts = { handlers: [], filters: [], mutators: [], pipelines: [] }
  const documents = parseAllDocuments(typed)
  if (!Array.isArray(documents)) return drafts // the text is empty
  for (const document of documents) {
    const [mistake] = document.errors
    if (mistake) throw new Error(mistake.message.split('\n')[0])
    const value = document.toJS() as Wrapped | null
    if (value === null) continue
    const field = fields[value.type]
    if (!field) throw new Error(text.badKind(value.type))
    if (!value.metadata?.name) throw new Error(text.noName)
    const definition = unwrapDefinition(value)
    drafts[field].push({ ...definition, metadata: { ...value.metadata, namespace } })
  }
  return drafts
}

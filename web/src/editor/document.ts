import { structuredPatch } from 'diff'
import { isCollection, LineCounter, parseDocument, stringify, type Document } from 'yaml'
import type { Refusal } from '../api/types'

/** A mistake with its place in the text. */
export interface Mistake {
  from: number
  to: number
  message: string
}

/** What a YAML text says, or why it says nothing. */
export type Parsed = { value: Record<string, unknown>; document: Document } | { mistakes: Mistake[] }

/** Reads one YAML document that is an object. */
export function parse(text: string): Parsed {
  const document = parseDocument(text, { lineCounter: new LineCounter(), prettyErrors: true })
  if (document.errors.length > 0) {
    return {
      mistakes: document.errors.map(({ pos: [from, to], message }) => ({
        from,
        to: Math.max(to, from + 1),
        message: message.split('\n')[0] ?? message,
      })),
    }
  }
  const value = document.toJS() as unknown
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { mistakes: [{ from: 0, to: text.length, message: 'A definition has fields: type, api_version, metadata and spec.' }] }
  }
  return { value: value as Record<string, unknown>, document }
}

/** Writes an object as YAML; long texts are not folded. */
export function write(value: unknown): string {
  return stringify(value, { lineWidth: 0 })
}

/** The mistakes that the server found, with their places. A field is a path in the spec, or from metadata on. */
export function placed(document: Document, mistakes: NonNullable<Refusal['mistakes']>): Mistake[] {
  return mistakes.map(({ field = '', message = '' }) => ({ ...placeOf(document, field), message }))
}

function placeOf(document: Document, field: string): { from: number; to: number } {
  const steps = field
    .split(/[.[\]]/)
    .filter((step) => step !== '')
    .map((step) => (/^\d+$/.test(step) ? Number(step) : step))
  const path = steps[0] === 'metadata' ? steps : ['spec', ...steps]
  for (let n = path.length; n > 0; n--) {
    const node = document.getIn(path.slice(0, n), true) as { range?: [number, number, number] } | undefined
    if (node?.range) return { from: node.range[0], to: isCollection(node) ? node.range[0] + 1 : node.range[1] }
  }
  return { from: 0, to: 1 }
}

export interface DiffLine {
  kind: 'same' | 'added' | 'removed' | 'gap'
  text: string
}

/** The lines that differ between two texts, with some around them. */
export function diffLines(before: string, after: string): DiffLine[] {
  const { hunks } = structuredPatch('', '', before, after, '', '', { context: 3 })
  return hunks.flatMap(({ lines }, i) => [
    ...(i === 0 ? [] : [{ kind: 'gap' as const, text: '…' }]),
    ...lines
      .filter((line) => !line.startsWith('\\'))
      .map((line): DiffLine => ({
        kind: line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : 'same',
        text: line.slice(1),
      })),
  ])
}

/** What a field is, with its name as in definitions: descriptions may begin with the name that it has in the source. */
export function described(field: string, description = ''): string {
  const [first = '', ...rest] = description.split(' ')
  return first.toLowerCase() === field.replaceAll('_', '') ? [field, ...rest].join(' ') : description
}

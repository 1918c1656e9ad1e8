import type { AuditEntry } from '../../api/types'
import { write } from '../../editor/document'
import { auditText as t } from '../../text/audit'

/** A change of a field, as texts to compare. */
export interface Change {
  /** A JSON pointer; "" for all. */
  path: string
  before: string
  after: string
}

export const changesOf = ({ changes }: AuditEntry): Change[] =>
  (changes ?? []).map(({ path, old, new: now }) => ({ path, before: shown(old), after: shown(now) }))

function shown(value: unknown): string {
  if (value === undefined || value === null) return ''
  return typeof value === 'string' ? value + '\n' : write(value)
}

/** The fields that changed, in a line. */
export function summary({ changes }: AuditEntry): string {
  const paths = (changes ?? []).map(({ path }) => path.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~'))
  return paths.map((path) => (path === '' ? t.everything : path)).join(', ')
}

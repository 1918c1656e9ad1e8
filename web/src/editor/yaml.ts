import { wrap, type Definition, type Kind } from '../api/definitions'
import { write } from './document'

/** A definition as a file for `lapwing create -f` and sensuctl. */
export const yamlOf = (kind: Kind, definition: Definition): string => write(wrap(kind, definition))

/** Definitions as one file. */
export const fileOf = (documents: readonly { kind: Kind; definition: Definition }[]): string =>
  documents.map(({ kind, definition }) => yamlOf(kind, definition)).join('---\n')

import type { Row } from './row'

export type Matcher = (row: Row) => boolean

/** Splits a query into words and "quoted phrases". */
export function parseQuery(query: string): string[] {
  const terms: string[] = []
  for (const match of query.matchAll(/"([^"]*)"?|[^\s"]+/g)) {
    const term = (match[1] ?? match[0]).toLowerCase()
    if (term.trim() !== '') terms.push(term)
  }
  return terms
}

/** Every term must occur, in any case, in the entity, the check, the namespace or the output. */
export function compileQuery(query: string): Matcher | undefined {
  const terms = parseQuery(query)
  if (terms.length === 0) return undefined
  const matchers = terms.map(compileTerm)
  const [only] = matchers
  return matchers.length === 1 && only ? only : (row) => matchers.every((matches) => matches(row))
}

function compileTerm(term: string): Matcher {
  // Names repeat a lot, so each distinct one is searched once per query; outputs mostly do not.
  const names = new Map<string, boolean>()
  const inName = (name: string): boolean => {
    let found = names.get(name)
    if (found === undefined) {
      found = name.toLowerCase().includes(term)
      names.set(name, found)
    }
    return found
  }
  return (row) =>
    inName(row.check) || inName(row.entity) || inName(row.namespace) || row.output.toLowerCase().includes(term)
}

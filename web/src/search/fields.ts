/** A field that the search knows by a short name. */
export interface Field {
  name: string
  /** As the API names it. */
  full: string
  help: string
  /** Values that it can have, if they are few. */
  values?: readonly string[]
  /** Its values are found by grouping a list by this. */
  groupBy?: string
}

/** The fields of an event that people search by. All others are written as the API names them. */
export const eventFields: readonly Field[] = [
  { name: 'entity', full: 'event.entity.name', help: 'Name of the entity', groupBy: 'entity' },
  { name: 'check', full: 'event.check.name', help: 'Name of the check', groupBy: 'check' },
  { name: 'namespace', full: 'event.namespace', help: 'Namespace', groupBy: 'namespace' },
  { name: 'status', full: 'event.check.status', help: '0 OK, 1 warning, 2 critical, others unknown', values: ['0', '1', '2', '3'] },
  { name: 'state', full: 'event.check.state', help: 'State of the check', values: ['passing', 'failing', 'flapping'] },
  { name: 'output', full: 'event.check.output', help: 'Output of the newest result' },
  { name: 'last_ok', full: 'event.check.last_ok', help: 'When it last passed: last_ok > 2h is longer ago' },
  { name: 'occurrences', full: 'event.check.occurrences', help: 'Results in a row with this status' },
  { name: 'timestamp', full: 'event.timestamp', help: 'When the newest result came' },
  { name: 'silenced', full: 'event.is_silenced', help: 'A silence applies', values: ['true', 'false'] },
  { name: 'handlers', full: 'event.check.handlers', help: 'Handlers: slack in handlers' },
  { name: 'subscriptions', full: 'event.entity.subscriptions', help: 'Subscriptions: web in subscriptions' },
  { name: 'class', full: 'event.entity.entity_class', help: 'Class of the entity', values: ['agent', 'proxy'] },
  { name: 'os', full: 'event.entity.system.os', help: 'Operating system of the entity' },
  { name: 'label', full: 'event.labels', help: 'A label: label.region == eu' },
]

const byName = new Map(eventFields.map((field) => [field.name, field.full]))

function full(name: string): string {
  if (name.startsWith('label.')) return `event.labels.${name.slice('label.'.length)}`
  return byName.get(name) ?? name
}

const comparison = /^\s*(?:==|!=|=~|!~|<=|>=|<|>)/
const word = /^[A-Za-z_][\w./:@+-]*/
const membership = /^\s+(in|notin|matches)\s+/i

/** A selector with the API's names in place of the short ones. Values, quoted or not, stay as they are. */
export function expand(selector: string): string {
  let out = ''
  let rest = selector
  while (rest !== '') {
    const quoted = /^"(?:[^"\\]|\\.)*"?|^'(?:[^'\\]|\\.)*'?/.exec(rest)?.[0]
    const found = quoted ?? word.exec(rest)?.[0]
    if (found === undefined) {
      out += rest[0]
      rest = rest.slice(1)
      continue
    }
    rest = rest.slice(found.length)
    const member = membership.exec(rest)
    const right = member && word.exec(rest.slice(member[0].length))?.[0]
    if (member && right !== undefined && right !== null && member[1]?.toLowerCase() !== 'matches') { // value in name
      out += found + member[0] + full(right)
      rest = rest.slice(member[0].length + right.length)
    } else {
      out += quoted === undefined && (member || comparison.test(rest)) ? full(found) : found
      const value = comparison.exec(rest)?.[0] ?? member?.[0]
      if (value !== undefined) { // what follows is a value
        out += value
        rest = rest.slice(value.length)
        const bare = /^\s*[^\s"'[(&|)]+/.exec(rest)?.[0] ?? ''
        out += bare
        rest = rest.slice(bare.length)
      }
    }
  }
  return out
}

/** What may come at the end of a text. */
export interface Suggestion {
  /** The whole text with it. */
  text: string
  label: string
  help?: string
}

/** The value that is being typed at the end of a text: of which field, and its beginning. */
export function valueAt(text: string): { field: Field; begin: string; before: string } | undefined {
  const found = /^(.*?)([\w.]+)(\s*(?:==|!=)\s*)"?([^"\s&|()]*)$/s.exec(text)
  const field = found && eventFields.find(({ name, full: long }) => name === found[2] || long === found[2])
  if (!found || !field) return undefined
  return { field, begin: found[4] ?? '', before: `${found[1]}${found[2]}${found[3]}` }
}

/** Names of fields for the word at the end of a text, if a condition may begin there. */
export function suggestFields(text: string): Suggestion[] {
  const found = /^(.*(?:&&|\|\||\(|!)\s*|\s*)([\w.]*)$/s.exec(text)
  if (!found) return []
  const [, before = '', begin = ''] = found
  if (begin === '' && before === '') return []
  return eventFields
    .filter(({ name }) => name.startsWith(begin) && name !== begin)
    .map(({ name, help, full: long }) => ({
      text: before + (name === 'label' ? 'label.' : ['handlers', 'subscriptions'].includes(name) ? ` in ${name}` : `${name} ${long.endsWith('last_ok') || name === 'timestamp' ? '>' : name === 'output' ? '=~' : '=='} `),
      label: name,
      help,
    }))
}

/** Values of the field at the end of a text. */
export function suggestValues(text: string, values: readonly string[]): Suggestion[] {
  const at = valueAt(text)
  if (!at) return []
  const begin = at.begin.toLowerCase()
  return values
    .filter((value) => value.toLowerCase().includes(begin) && value !== at.begin)
    .slice(0, 12)
    .map((value) => ({ text: `${at.before}${/^[\w.:@+/-]+$/.test(value) ? value : JSON.stringify(value)}`, label: value }))
}

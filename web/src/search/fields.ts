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
  /** What is offered behind the name; default ==. "in" stands before it, behind a value. */
  operator?: '>' | '=~' | 'in' | '.'
}

/** How people search in a list. Fields that it does not name are written as the API names them. */
export interface Language {
  fields: readonly Field[]
  /** Fields that words without an operator are looked for in, as the API names them. */
  words: readonly string[]
  /** The full name for what is not among the fields. Default: the same name. */
  others?: (name: string) => string
}

const eventFields: readonly Field[] = [
  { name: 'entity', full: 'event.entity.name', help: 'Name of the entity', groupBy: 'entity' },
  { name: 'check', full: 'event.check.name', help: 'Name of the check', groupBy: 'check' },
  { name: 'namespace', full: 'event.namespace', help: 'Namespace', groupBy: 'namespace' },
  { name: 'status', full: 'event.check.status', help: '0 OK, 1 warning, 2 critical, others unknown', values: ['0', '1', '2', '3'] },
  { name: 'state', full: 'event.check.state', help: 'State of the check', values: ['passing', 'failing', 'flapping'] },
  { name: 'output', full: 'event.check.output', help: 'Output of the newest result', operator: '=~' },
  { name: 'last_ok', full: 'event.check.last_ok', help: 'When it last passed: last_ok > 2h is longer ago', operator: '>' },
  { name: 'occurrences', full: 'event.check.occurrences', help: 'Results in a row with this status' },
  { name: 'timestamp', full: 'event.timestamp', help: 'When the newest result came', operator: '>' },
  { name: 'silenced', full: 'event.is_silenced', help: 'A silence applies', values: ['true', 'false'] },
  { name: 'handlers', full: 'event.check.handlers', help: 'Handlers: slack in handlers', operator: 'in' },
  { name: 'subscriptions', full: 'event.entity.subscriptions', help: 'Subscriptions: web in subscriptions', operator: 'in' },
  { name: 'class', full: 'event.entity.entity_class', help: 'Class of the entity', values: ['agent', 'proxy'] },
  { name: 'os', full: 'event.entity.system.os', help: 'Operating system of the entity' },
  { name: 'label', full: 'event.labels', help: 'A label: label.region == eu', operator: '.' },
]

export const eventLanguage: Language = { fields: eventFields, words: ['event.entity.name', 'event.check.name'] }

const entityFields: readonly Field[] = [
  { name: 'name', full: 'entity.name', help: 'Name of the entity' },
  { name: 'namespace', full: 'entity.namespace', help: 'Namespace', groupBy: 'namespace' },
  { name: 'class', full: 'entity.entity_class', help: 'Class of the entity', groupBy: 'class' },
  { name: 'os', full: 'entity.system.os', help: 'Operating system', groupBy: 'os' },
  { name: 'platform', full: 'entity.system.platform', help: 'Distribution, or version of Windows', groupBy: 'platform' },
  { name: 'version', full: 'entity.sensu_agent_version', help: 'Version of the agent', groupBy: 'version' },
  { name: 'subscriptions', full: 'entity.subscriptions', help: 'Subscriptions: web in subscriptions', operator: 'in' },
  { name: 'last_seen', full: 'entity.last_seen', help: 'When it was last seen: last_seen > 1h is longer ago', operator: '>' },
  { name: 'label', full: 'entity.labels', help: 'A label: label.region == eu', operator: '.' },
]

export const entityLanguage: Language = { fields: entityFields, words: ['entity.name'] }

const ofEvents = (name: string) => (name.startsWith('entity.') ? `event.${name}` : name)

/** A search for entities, as a condition for their events. */
export const eventsOfEntities: Language = {
  fields: entityFields.map((field) => ({ ...field, full: ofEvents(field.full) })),
  words: ['event.entity.name'],
  others: ofEvents,
}

function full(name: string, { fields, others }: Language): string {
  const [first = '', ...key] = name.split('.')
  const field = fields.find((one) => (key.length > 0 ? one.operator === '.' && one.name === first : one.name === name))
  if (field) return [field.full, ...key].join('.')
  return others?.(name) ?? name
}

const comparison = /^\s*(?:==|!=|=~|!~|<=|>=|<|>)/
const word = /^[A-Za-z_][\w./:@+-]*/
const membership = /^\s+(in|notin|matches)\s+/i

/** A selector with the API's names in place of the short ones. Values, quoted or not, stay as they are. */
export function expand(selector: string, language: Language = eventLanguage): string {
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
    if (member && right !== undefined && right !== null && member[1]?.toLowerCase() !== 'matches') {
      // value in name
      out += found + member[0] + full(right, language)
      rest = rest.slice(member[0].length + right.length)
    } else {
      out += quoted === undefined && (member || comparison.test(rest)) ? full(found, language) : found
      const value = comparison.exec(rest)?.[0] ?? member?.[0]
      if (value !== undefined) {
        // what follows is a value
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
export function valueAt(text: string, { fields } = eventLanguage): { field: Field; begin: string; before: string } | undefined {
  const found = /^(.*?)([\w.]+)(\s*(?:==|!=)\s*)"?([^"\s&|()]*)$/s.exec(text)
  const field = found && fields.find(({ name, full: long }) => name === found[2] || long === found[2])
  if (!found || !field) return undefined
  return { field, begin: found[4] ?? '', before: `${found[1]}${found[2]}${found[3]}` }
}

/** Names of fields for the word at the end of a text, if a condition may begin there. */
export function suggestFields(text: string, { fields } = eventLanguage): Suggestion[] {
  const found = /^(.*(?:&&|\|\||\(|!)\s*|\s*)([\w.]*)$/s.exec(text)
  if (!found) return []
  const [, before = '', begin = ''] = found
  if (begin === '' && before === '') return []
  return fields
    .filter(({ name }) => name.startsWith(begin) && name !== begin)
    .map(({ name, help, operator = '==' }) => ({
      text: before + (operator === '.' ? `${name}.` : operator === 'in' ? ` in ${name}` : `${name} ${operator} `),
      label: name,
      help,
    }))
}

/** Values of the field at the end of a text. */
export function suggestValues(text: string, values: readonly string[], language = eventLanguage): Suggestion[] {
  const at = valueAt(text, language)
  if (!at) return []
  const begin = at.begin.toLowerCase()
  return values
    .filter((value) => value.toLowerCase().includes(begin) && value !== at.begin)
    .slice(0, 12)
    .map((value) => ({ text: `${at.before}${/^[\w.:@+/-]+$/.test(value) ? value : JSON.stringify(value)}`, label: value }))
}

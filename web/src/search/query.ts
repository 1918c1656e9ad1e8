import { eventLanguage, expand, type Language } from './fields'

/**
 * What the user types to find events, or what else a language is for: words that are in names, or a selector, with short
 * names of fields. A chip is a part of the text, so that chips and text are always the same.
 */
export interface Query {
  /** The field selector for the API; "" for all events. */
  selector: string
  /** The parts that must all hold, as written. */
  chips: string[]
}

const operator = /(==|!=|=~|!~|<=|>=|<|>|&&|\|\||!\()|\b(in|notin|matches)\b/

/** Reports whether a text is a selector and not words. */
export function isSelector(text: string): boolean {
  return operator.test(text)
}

/** Reports whether a selector lacks its end: it is being typed, and would be refused. */
export function isUnfinished(text: string): boolean {
  const trimmed = text.trim()
  return (
    isSelector(trimmed) &&
    (/(==|!=|=~|!~|<=|>=|<|>|&&|\|\||[(!,[]|\b(in|notin|matches))$/.test(trimmed) || /(&&|\|\|)\s*[\w.]+$/.test(trimmed))
  )
}

/** Quotes a text for a selector. */
export function quoted(text: string): string {
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
}

function literal(word: string): string {
  return word.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}

/** A word in one of the names, in upper or lower case. */
function wordTerm(word: string, { words }: Language): string {
  const pattern = quoted(`(?i)${literal(word)}`)
  const terms = words.map((field) => `${field} =~ ${pattern}`)
  return terms.length > 1 ? `(${terms.join(' || ')})` : terms.join('')
}

export function parseQuery(text: string, language: Language = eventLanguage): Query {
  const trimmed = text.trim()
  if (trimmed === '') return { selector: '', chips: [] }
  if (isSelector(trimmed)) {
    const chips = conjuncts(trimmed)
    return { selector: chips.map((chip) => (hasOr(chip) ? `(${expand(chip, language)})` : expand(chip, language))).join(' && '), chips }
  }
  const chips = trimmed.split(/\s+/)
  return { selector: chips.map((word) => wordTerm(word, language)).join(' && '), chips }
}

/** The text without one of its chips. */
export function withoutChip(text: string, chip: number): string {
  const { chips } = parseQuery(text)
  return chips.filter((_, i) => i !== chip).join(isSelector(text) ? ' && ' : ' ')
}

/** The text with one more condition. */
export function withTerm(text: string, term: string, language: Language = eventLanguage): string {
  const { selector, chips } = parseQuery(text, language)
  if (chips.length === 0) return term
  return `${isSelector(text) ? chips.join(' && ') : selector} && ${term}`
}

/** All selectors at once, for a list that has conditions of its own. */
export function allOf(...selectors: string[]): string {
  const some = selectors.filter((s) => s !== '')
  return some.length === 1 ? (some[0] ?? '') : some.map((s) => (hasOr(s) ? `(${s})` : s)).join(' && ')
}

function hasOr(text: string): boolean {
  return split(text, '||').length > 1
}

function conjuncts(text: string): string[] {
  // With an or outside of parentheses, the whole is one condition.
  return split(text, '||').length > 1 ? [text] : split(text, '&&')
}

/** Splits a selector at an operator that is outside of quotes and parentheses. */
function split(text: string, at: string): string[] {
  const parts: string[] = []
  let depth = 0
  let quote = ''
  let start = 0
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (quote !== '') {
      if (c === '\\') i++
      else if (c === quote) quote = ''
    } else if (c === '"' || c === "'") quote = c
    else if (c === '(' || c === '[') depth++
    else if (c === ')' || c === ']') depth--
    else if (depth === 0 && text.startsWith(at, i)) {
      parts.push(text.slice(start, i).trim())
      i += at.length - 1
      start = i + 1
    }
  }
  parts.push(text.slice(start).trim())
  return parts.filter((part) => part !== '')
}

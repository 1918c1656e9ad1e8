import type { FunctionParameter } from '../../api/graphite'

/** A function that is applied to a target: its name, and its arguments after the series. */
export interface Call {
  name: string
  rest: string[]
}

/** A target as what it begins with, and the functions around it from the inside. */
export interface Chain {
  base: string
  calls: Call[]
}

/** Takes a target apart. A function whose first argument is no series is not taken apart. */
export function chainOf(target: string, series: (name: string) => boolean): Chain {
  const trimmed = target.trim()
  const [, name = '', inside = ''] = /^([A-Za-z_]\w*)\(([\s\S]*)\)$/.exec(trimmed) ?? []
  const parts = name === '' || !series(name) ? undefined : argumentsOf(inside)
  const [first, ...rest] = parts ?? []
  if (first === undefined) return { base: trimmed, calls: [] }
  const inner = chainOf(first, series)
  return { base: inner.base, calls: [...inner.calls, { name, rest }] }
}

export function targetOf({ base, calls }: Chain): string {
  return calls.reduce((inner, { name, rest }) => `${name}(${[inner, ...rest].join(', ')})`, base)
}

/** The arguments between commas that are in no brackets and quotes; undefined if brackets do not match. */
export function argumentsOf(inside: string): string[] | undefined {
  const parts: string[] = []
  let depth = 0
  let quote = ''
  let part = ''
  for (const c of inside) {
    if (quote !== '') quote = c === quote ? '' : quote
    else if (c === '"' || c === "'") quote = c
    else if ('({['.includes(c)) depth++
    else if (')}]'.includes(c)) depth--
    if (depth < 0) return undefined
    if (c === ',' && depth === 0 && quote === '') {
      parts.push(part.trim())
      part = ''
    } else part += c
  }
  if (depth !== 0 || quote !== '') return undefined
  return [...parts, part.trim()].filter((one) => one !== '')
}

/** An argument as it is written in a target; undefined for one that is left out. */
export function writeArgument({ type }: Pick<FunctionParameter, 'type'>, typed: string): string | undefined {
  const value = typed.trim()
  if (value === '') return undefined
  if (type === 'boolean') return value
  const bare = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(value)
  if (bare && type !== 'string') return value
  return /^(['"]).*\1$/.test(value) ? value : value.includes("'") ? `"${value}"` : `'${value}'`
}

/** A call with what was typed for each parameter after the series. Those behind one that is left out have their names. */
export function writeCall(name: string, parameters: readonly FunctionParameter[], typed: Readonly<Record<string, string>>): Call {
  let skipped = false
  const rest = parameters.flatMap((parameter) => {
    const values = parameter.multiple ? (typed[parameter.name] ?? '').split(',') : [typed[parameter.name] ?? '']
    const written = values.flatMap((value) => writeArgument(parameter, value) ?? [])
    if (written.length === 0) {
      skipped = true
      return []
    }
    return skipped ? written.map((one) => `${parameter.name}=${one}`) : written
  })
  return { name, rest }
}

/** A target for the series that have all tags. */
export function byTags(pairs: readonly (readonly [tag: string, value: string])[]): string {
  return `seriesByTag(${pairs.map(([tag, value]) => quote(`${tag}=${value}`)).join(', ')})`
}

const quote = (value: string) => (value.includes("'") ? `"${value}"` : `'${value}'`)

import { refusal } from './client'

// Graphite's API has its own forms, which the document of this API does not describe. So what comes is looked at here.

/** A series with its points: a value, or null, for each time in Unix seconds. */
export interface MetricSeries {
  target: string
  tags: Record<string, string>
  points: (readonly [value: number | null, time: number])[]
}

/** A node of the tree of names. */
export interface MetricNode {
  id: string
  text: string
  leaf: boolean
  expandable: boolean
}

export interface FunctionParameter {
  name: string
  type: string
  required: boolean
  multiple: boolean
  /** Values that there are, or that are often used. */
  options: string[]
}

export interface GraphiteFunction {
  name: string
  group: string
  /** The function with its parameters. */
  form: string
  help: string
  parameters: FunctionParameter[]
}

type Fetch = typeof globalThis.fetch

const base = '/api/lapwing/v1/graphite/'

export interface Rendering {
  targets: readonly string[]
  from: number
  until: number
  /** Points of a series at most; they are put together if there are more. */
  points?: number
}

/** Renders targets in another format: a picture or CSV. */
export async function renderAs(fetch: Fetch, format: string, rendering: Rendering, more: Record<string, string> = {}): Promise<Response> {
  const { targets, from, until, points } = rendering
  const form = new URLSearchParams({ from: String(Math.floor(from)), until: String(Math.ceil(until)), format, ...more })
  for (const target of targets) form.append('target', target)
  if (points !== undefined) form.set('maxDataPoints', String(points))
  return succeeded(await fetch(`${base}render`, { method: 'POST', body: form }))
}

export async function render(fetch: Fetch, rendering: Rendering): Promise<MetricSeries[]> {
  return parseSeries(await (await renderAs(fetch, 'json', rendering)).json())
}

/** The nodes that a pattern matches, in order. */
export async function findNodes(fetch: Fetch, pattern: string): Promise<MetricNode[]> {
  const found = list(await get(fetch, 'metrics/find', { query: pattern }))
  return found
    .map(object)
    .map((node) => ({ id: string(node.id), text: string(node.text), leaf: node.leaf === 1, expandable: node.expandable === 1 }))
}

/** Tags of series, those that begin with a text. */
export async function findTags(fetch: Fetch, prefix: string, expressions: readonly string[]): Promise<string[]> {
  return list(await get(fetch, 'tags/autoComplete/tags', { tagPrefix: prefix, limit: '100', expr: expressions })).map(string)
}

export async function findValues(fetch: Fetch, tag: string, prefix: string, expressions: readonly string[]): Promise<string[]> {
  return list(await get(fetch, 'tags/autoComplete/values', { tag, valuePrefix: prefix, limit: '100', expr: expressions })).map(string)
}

export async function graphiteFunctions(fetch: Fetch): Promise<GraphiteFunction[]> {
  const all = Object.values(object(await get(fetch, 'functions', {}))).map(object)
  return all
    .map((one) => ({
      name: string(one.name),
      group: string(one.group),
      form: string(one.function),
      help: string(one.description),
      parameters: list(one.params)
        .map(object)
        .map((parameter) => ({
          name: string(parameter.name),
          type: string(parameter.type),
          required: parameter.required === true,
          multiple: parameter.multiple === true,
          options: [...list(parameter.options ?? []), ...list(parameter.suggestions ?? [])].map(string),
        })),
    }))
    .sort((a, b) => a.name.localeCompare(b.name))
}

export function parseSeries(answer: unknown): MetricSeries[] {
  return list(answer)
    .map(object)
    .map((series) => ({
      target: string(series.target),
      tags: Object.fromEntries(Object.entries(object(series.tags ?? {})).map(([tag, value]) => [tag, string(value)])),
      points: list(series.datapoints)
        .map(list)
        .map(([value, time]) => [typeof value === 'number' ? value : null, Number(time)] as const),
    }))
}

/** The values of several series for the times of all. A series without a point at the time of another has undefined there. */
export function align(series: readonly MetricSeries[]): { times: number[]; values: (number | null | undefined)[][] } {
  const places = new Map<number, number>()
  const times = [...new Set(series.flatMap(({ points }) => points.map(([, time]) => time)))].sort((a, b) => a - b)
  times.forEach((time, i) => places.set(time, i))
  const values = series.map(({ points }) => {
    const row: (number | null | undefined)[] = Array.from({ length: times.length })
    for (const [value, time] of points) row[places.get(time) ?? 0] = value
    return row
  })
  return { times, values }
}

/** What a legend says of a series; undefined without values. */
export function figuresOf({ points }: MetricSeries): { min: number; max: number; mean: number; last: number } | undefined {
  const values = points.flatMap(([value]) => (value === null ? [] : [value]))
  const last = values.at(-1)
  if (last === undefined) return undefined
  const fold = (by: (a: number, b: number) => number) => values.reduce((a, b) => by(a, b))
  return { min: fold(Math.min), max: fold(Math.max), mean: fold((a, b) => a + b) / values.length, last }
}

const large = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 4 })
const usual = new Intl.NumberFormat('en', { maximumSignificantDigits: 4 })

/** A value with four digits: 0.0421, 12.5, 4.1M. */
export function shortValue(value: number): string {
  const size = Math.abs(value)
  if (size !== 0 && size < 1e-4) return value.toExponential(2)
  return (size >= 10_000 ? large : usual).format(value)
}

async function get(fetch: Fetch, path: string, query: Record<string, string | readonly string[]>): Promise<unknown> {
  const form = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) for (const one of [value].flat()) form.append(name, one)
  return (await succeeded(await fetch(`${base}${path}?${form.toString()}`))).json()
}

async function succeeded(response: Response): Promise<Response> {
  if (response.ok) return response
  const body = await response.text()
  let parsed: unknown = body
  try {
    parsed = JSON.parse(body)
  } catch {
    // Graphite's own refusals are text.
  }
  throw refusal(response.status, typeof parsed === 'string' ? parsed.trim() : parsed)
}

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])
const object = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
const string = (value: unknown): string => (typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '')

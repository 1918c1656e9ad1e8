import { everywhere } from '../app/search'
import { text } from '../text'
import { ApiError, refusal } from './client'
import type { ObjectMeta } from './types'

/** A kind of definitions. */
export interface Kind {
  /** As in paths of the API. */
  plural: string
  /** As in files. */
  type: string
  group: string
  /** As in roles and in the stream of changes. */
  role: string
  namespaced: boolean
}

const kind = (type: string, plural: string, group = 'core/v2', namespaced = true): Kind => ({
  plural,
  type,
  group,
  role: plural,
  namespaced,
})

/** The kinds that can be edited as YAML, in the order of dumps. */
export const kinds = {
  clusterroles: kind('ClusterRole', 'clusterroles', 'core/v2', false),
  clusterrolebindings: kind('ClusterRoleBinding', 'clusterrolebindings', 'core/v2', false),
  assets: kind('Asset', 'assets'),
  calendars: kind('Calendar', 'calendars', 'lapwing/v1'),
  contacts: kind('Contact', 'contacts', 'lapwing/v1'),
  rotas: kind('Rota', 'rotas', 'lapwing/v1'),
  checks: kind('CheckConfig', 'checks'),
  entities: kind('Entity', 'entities'),
  filters: kind('EventFilter', 'filters'),
  handlers: kind('Handler', 'handlers'),
  hooks: kind('HookConfig', 'hooks'),
  mutators: kind('Mutator', 'mutators'),
  pipelines: kind('Pipeline', 'pipelines'),
  fallbackPipeline: kind('FallbackPipeline', 'fallbackPipeline'),
  roles: kind('Role', 'roles'),
  rolebindings: kind('RoleBinding', 'rolebindings'),
  silenced: kind('Silenced', 'silenced'),
  aggregates: kind('Aggregate', 'aggregates', 'lapwing/v1'),
  metricchecks: kind('MetricCheck', 'metricchecks', 'lapwing/v1'),
} satisfies Record<string, Kind>

/** A definition as the API has it: its spec with the metadata in it. */
export interface Definition {
  metadata?: ObjectMeta | undefined
  [field: string]: unknown
}

/** A definition as in files. */
export interface Wrapped {
  type: string
  api_version: string
  metadata: ObjectMeta
  spec: Record<string, unknown>
}

export function wrap({ type, group }: Kind, definition: Definition): Wrapped {
  const { metadata, ...spec } = definition
  return { type, api_version: group, metadata: metadata ?? {}, spec }
}

export const unwrapDefinition = ({ metadata, spec }: Wrapped): Definition => ({ ...spec, metadata })

/** The path of a kind's list, or of one of its definitions. */
export function pathOf({ group, plural, namespaced }: Kind, namespace: string, name?: string): string {
  const space = namespaced && namespace !== everywhere ? `/namespaces/${encodeURIComponent(namespace)}` : ''
  return `/api/${group}${space}/${plural}${name === undefined ? '' : `/${encodeURIComponent(name)}`}`
}

/** What the server answered to a write: warnings for its author. */
export interface Written {
  warnings: string[]
}

/** Reads and writes definitions of any kind. */
export class Definitions {
  private readonly fetch: typeof globalThis.fetch

  constructor(fetch: typeof globalThis.fetch) {
    this.fetch = fetch
  }

  /** All of a kind in a namespace, or in all. */
  list<T extends Definition = Definition>(kind: Kind, namespace: string, query: Record<string, string> = {}): Promise<T[]> {
    return this.get(pathOf(kind, namespace) + encoded(query))
  }

  one<T extends Definition = Definition>(kind: Kind, namespace: string, name: string): Promise<T> {
    return this.get(pathOf(kind, namespace, name))
  }

  /** Writes a definition, or with dry only asks what the server would say to it. */
  put(kind: Kind, definition: Definition, dry = false): Promise<Written> {
    const { namespace = '', name = '' } = definition.metadata ?? {}
    return this.write('PUT', pathOf(kind, namespace, name), dry, definition)
  }

  /**
   * Writes a definition in place of the one that was read. It throws if somebody has changed that one since. undo puts the
   * old one back, unless somebody has changed the new one.
   */
  async replace(kind: Kind, read: Definition, definition: Definition): Promise<Written & { undo: () => Promise<unknown> }> {
    const { namespace = '', name = '' } = definition.metadata ?? {}
    if (name !== (read.metadata?.name ?? '')) {
      const made = await this.put(kind, definition)
      return { ...made, undo: () => this.delete(kind, namespace, name) }
    }
    const now = await this.one(kind, namespace, name)
    if (unlike(read, now)) throw new ApiError(412, text.editor.changed(name))
    const written = await this.put(kind, definition)
    const as = await this.one(kind, namespace, name)
    return { ...written, undo: () => this.replace(kind, as, read) }
  }

  /** Makes a definition that must not be there yet. */
  create(kind: Kind, definition: Definition, dry = false): Promise<Written> {
    return this.write('POST', pathOf(kind, definition.metadata?.namespace ?? ''), dry, definition)
  }

  delete(kind: Kind, namespace: string, name: string, dry = false, query: Record<string, string> = {}): Promise<Written> {
    return this.write('DELETE', pathOf(kind, namespace, name) + encoded(query), dry)
  }

  private async get<T>(path: string): Promise<T> {
    const response = await this.fetch(path)
    const body = await bodyOf(response)
    if (!response.ok) throw refusal(response.status, body)
    return (body ?? []) as T
  }

  private async write(method: string, path: string, dry: boolean, body?: Definition): Promise<Written> {
    const response = await this.fetch((dry ? '/api/lapwing/v1/dry-run' : '') + path, {
      method,
      ...(body === undefined ? {} : { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }),
    })
    if (!response.ok) throw refusal(response.status, await bodyOf(response))
    return { warnings: warningsOf(response.headers.get('Warning')) }
  }
}

/** What the backend itself changes in a definition. */
const own = new Set(['last_seen', 'system'])

function unlike(x: Definition, y: Definition): boolean {
  const plain = (one: Definition) =>
    JSON.stringify(
      Object.entries(one)
        .filter(([key]) => !own.has(key))
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    )
  return plain(x) !== plain(y)
}

function encoded(query: Record<string, string>): string {
  const params = new URLSearchParams(query).toString()
  return params === '' ? '' : `?${params}`
}

async function bodyOf(response: Response): Promise<unknown> {
  const body = await response.text()
  try {
    return JSON.parse(body)
  } catch {
    return body
  }
}

/** The texts of a Warning header: 299 - "text", 299 lapwing "text". */
export function warningsOf(header: string | null): string[] {
  return [...(header ?? '').matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, quoted = '']) => quoted.replace(/\\(.)/g, '$1'))
}

import type { Namespace, Refusal, SensuEvent } from '../api/types'
import type { EventRef } from '../live/event'
import type { Session } from './session'

export class APIError extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** The few requests this page makes beside the stream. */
export class Client {
  private readonly session: Session

  constructor(session: Session) {
    this.session = session
  }

  async namespaces(): Promise<string[]> {
    const list = await this.get<Namespace[] | null>('/api/core/v2/namespaces')
    return (list ?? []).map((namespace) => namespace.name ?? '').sort()
  }

  event(ref: EventRef, signal: AbortSignal): Promise<SensuEvent> {
    const [namespace, entity, check] = [ref.namespace, ref.entity, ref.check].map(segment)
    return this.get(`/api/core/v2/namespaces/${namespace}/events/${entity}/${check}`, signal)
  }

  private async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    let stale: string | undefined
    for (;;) {
      const token = await this.session.token(stale)
      if (token === undefined) throw new APIError(401, 'not signed in')
      const response = await fetch(path, {
        headers: { Authorization: `Bearer ${token}` },
        cache: 'no-store',
        signal: signal ?? null,
      })
      if (response.status === 401 && stale === undefined) {
        stale = token
        continue
      }
      if (!response.ok) throw new APIError(response.status, await reason(response))
      return (await response.json()) as T
    }
  }
}

async function reason(response: Response): Promise<string> {
  const body = await response.text()
  try {
    const error = JSON.parse(body) as Refusal
    return error.message ?? error.Message ?? body
  } catch {
    return body.trim() || `the server answered ${response.status}`
  }
}

/** Encodes a name for a path. A colon is not encoded, as in every client of this API. */
function segment(name: string): string {
  return encodeURIComponent(name).replaceAll('%3A', ':')
}

import createClient, { type Client } from 'openapi-fetch'
import type { paths } from './schema'

export type Api = Client<paths>

export function newApi(fetch: typeof globalThis.fetch): Api {
  return createClient<paths>({ baseUrl: '', fetch })
}

/** An answer that is no success, in the server's own words. */
export class ApiError extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }

  get denied(): boolean {
    return this.status === 403
  }

  get missing(): boolean {
    return this.status === 404
  }
}

/** The data of an answer. It throws ApiError for a refusal, and what fetch throws if the server cannot be reached. */
export async function unwrap<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call
  if (response.ok) return data as T
  const message =
    typeof error === 'object' && error !== null && 'message' in error && typeof error.message === 'string'
      ? error.message
      : typeof error === 'string' && error !== ''
        ? error
        : `the server answered ${response.status}`
  throw new ApiError(response.status, message)
}

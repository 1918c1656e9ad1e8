import createClient, { type Client } from 'openapi-fetch'
import { text } from '../text'
import type { paths } from './schema'
import type { Refusal } from './types'

export type Api = Client<paths>

export function newApi(fetch: typeof globalThis.fetch): Api {
  return createClient<paths>({ baseUrl: '', fetch })
}

/** An answer that is no success, in the server's own words. */
export class ApiError extends Error {
  readonly status: number
  /** The broken rules of a definition, after a dry run. */
  readonly mistakes: Refusal['mistakes']

  constructor(status: number, message: string, mistakes?: Refusal['mistakes']) {
    super(message)
    this.status = status
    this.mistakes = mistakes
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
  throw refusal(response.status, error)
}

/** The error of an answer that is no success, from its body: text, or an object. Sensu writes keys in two ways. */
export function refusal(status: number, body: unknown): ApiError {
  if (typeof body === 'string' && body !== '') return new ApiError(status, body)
  const { message, Message, Verb, Resource, mistakes } = (body ?? {}) as Refusal
  if (Verb && Resource) return new ApiError(status, text.needs(Verb, Resource))
  return new ApiError(status, message || Message || `the server answered ${status}`, mistakes)
}

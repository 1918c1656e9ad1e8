import type { SignInOption } from '../api/types'
import { SignInError, type Session } from './session'

const oidc = '/api/enterprise/authentication/v2/oidc/'
const storageKey = 'lapwing.signin'

/** The tab's storage: the verifier must outlive the way to the provider and back. */
export type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem' | 'removeItem'>

/**
 * Signing in at an OpenID Connect provider: the page goes there and comes back with a code in its address. The code is
 * worthless without the verifier, which never leaves this page.
 */
export class BrowserSignIn {
  private readonly session: Session
  private readonly storage: Storage
  private readonly fetch: typeof fetch
  /** The API key of the link that the page was opened with, until somebody has agreed to it. */
  key: string | undefined
  /** Why the page came back without a sign-in. */
  error: SignInError | undefined

  constructor(options: { session: Session; storage: Storage; fetch?: typeof fetch }) {
    this.session = options.session
    this.storage = options.storage
    this.fetch = options.fetch ?? ((...args) => fetch(...args))
  }

  /** The available providers; none if the browser cannot keep the verifier secret. */
  async providers(): Promise<SignInOption[]> {
    if (!crypto.subtle) return []
    try {
      const response = await this.fetch('/api/lapwing/v1/auth/providers', { cache: 'no-store' })
      return response.ok ? ((await response.json()) as SignInOption[]) : []
    } catch {
      return []
    }
  }

  /** The URL of the provider's sign-in page. back is the address that the page returns to after it: a path, a query and a hash. */
  async begin(provider: string, back: string): Promise<string> {
    const verifier = random()
    const state = random()
    const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))
    this.storage.setItem(storageKey, JSON.stringify({ verifier, state, back } satisfies Begun))
    return `${oidc}authorize?${new URLSearchParams({ provider, callback: '/', state, challenge: base64url(new Uint8Array(digest)) })}`
  }

  /**
   * Finishes a sign-in if the page's address is its answer, and returns the address that it was begun at: the one with
   * the answer must not be shown afterwards.
   */
  async finish(query: URLSearchParams): Promise<string | undefined> {
    const begun = read(this.storage)
    if (!begun || query.get('state') !== begun.state) return undefined
    this.storage.removeItem(storageKey)
    const wrong = query.get('error')
    try {
      if (wrong !== null) throw new SignInError('server', wrong)
      await this.session.signIn({ code: query.get('code') ?? '', verifier: begun.verifier })
    } catch (err) {
      this.error = err instanceof SignInError ? err : new SignInError('server', String(err))
    }
    return begun.back
  }
}

/** A sign-in on its way through the provider. */
interface Begun {
  verifier: string
  state: string
  back: string
}

function read(storage: Storage): Begun | undefined {
  try {
    const value = JSON.parse(storage.getItem(storageKey) ?? 'null') as Begun | null
    return value && typeof value.state === 'string' && typeof value.back === 'string' ? value : undefined
  } catch {
    return undefined
  }
}

function random(): string {
  return base64url(crypto.getRandomValues(new Uint8Array(32)))
}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '')
}

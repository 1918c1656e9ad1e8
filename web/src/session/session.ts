import type { Tokens } from '../api/types'

interface Stored {
  user: string
  access: string
  refresh: string
  /** When the access token expires by this machine's clock, in Unix milliseconds. */
  expires: number
}

export class SignInError extends Error {
  readonly reason: 'credentials' | 'network' | 'server'
  constructor(reason: SignInError['reason'], message: string) {
    super(message)
    this.reason = reason
  }
}

const storageKey = 'lapwing.session'
const renewBefore = 45_000

/** Storage such as sessionStorage. */
export type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem' | 'removeItem'>

export interface SessionOptions {
  storage: Storage
  fetch?: typeof fetch
  channel?: Pick<BroadcastChannel, 'postMessage' | 'addEventListener'>
  now?: () => number
}

/**
 * The user's sign-in, and a valid access token for it.
 *
 * The backend rotates both tokens at a refresh and ends the sign-in if an old refresh token is used again. A
 * duplicated tab starts with a copy of this tab's tokens, so tabs send each other every rotation.
 */
export class Session {
  private stored: Stored | undefined
  private refreshing: Promise<string | undefined> | undefined
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly listeners = new Set<() => void>()
  private readonly storage: Storage
  private readonly fetch: typeof fetch
  private readonly channel: SessionOptions['channel']
  private readonly now: () => number
  /** The last sign-in ended without a sign-out by the user. */
  expired = false

  constructor(options: SessionOptions) {
    this.storage = options.storage
    this.fetch = options.fetch ?? ((...args) => fetch(...args))
    this.channel = options.channel
    this.now = options.now ?? Date.now
    this.stored = read(this.storage)
    this.channel?.addEventListener('message', (message) => {
      const { replaces, stored } = message.data as { replaces: string; stored: Stored }
      if (this.stored?.refresh === replaces) this.keep(stored)
    })
    this.renewInTime()
  }

  get user(): string | undefined {
    return this.stored?.user
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  async signIn(user: string, password: string): Promise<void> {
    const response = await this.ask('/auth', { headers: { Authorization: `Basic ${base64(`${user}:${password}`)}` } })
    this.keep(this.toStored(user, response, (await response.json()) as Tokens))
  }

  /** Signs in without a password; the tokens name the user. */
  async signInWith(path: string, body: unknown): Promise<void> {
    const response = await this.ask(path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })
    const tokens = (await response.json()) as Tokens
    this.keep(this.toStored(subject(tokens.access_token), response, tokens))
  }

  private async ask(path: string, init: RequestInit): Promise<Response> {
    let response: Response
    try {
      response = await this.fetch(path, { ...init, cache: 'no-store' })
    } catch (err) {
      throw new SignInError('network', String(err))
    }
    if (response.status === 401) throw new SignInError('credentials', 'unauthorized')
    if (!response.ok) throw new SignInError('server', `the server answered ${response.status}`)
    return response
  }

  async signOut(): Promise<void> {
    const stored = this.stored
    this.end(false)
    if (!stored) return
    try {
      await this.post('/auth/logout', stored)
    } catch {
      // The tokens are forgotten here; at the backend the sign-in expires.
    }
  }

  /**
   * An access token that stays valid for a while and is not `stale`. Resolves to undefined without a sign-in; rejects
   * when the backend cannot be reached.
   */
  async token(stale?: string): Promise<string | undefined> {
    const stored = this.stored
    if (!stored) return undefined
    if (stored.access !== stale && stored.expires - this.now() > 10_000) return stored.access
    return this.refresh()
  }

  private refresh(): Promise<string | undefined> {
    this.refreshing ??= this.rotate().finally(() => {
      this.refreshing = undefined
    })
    return this.refreshing
  }

  private async rotate(): Promise<string | undefined> {
    const before = this.stored
    if (!before) return undefined
    const response = await this.post('/auth/token', before)
    if (this.stored?.refresh !== before.refresh) return this.stored?.access // signed out, or another tab was faster
    if (response.status === 400 || response.status === 401) {
      this.end(true)
      return undefined
    }
    if (!response.ok) throw new Error(`refresh the session: the server answered ${response.status}`)
    const stored = this.toStored(before.user, response, (await response.json()) as Tokens)
    this.keep(stored)
    this.channel?.postMessage({ replaces: before.refresh, stored })
    return stored.access
  }

  private post(path: string, stored: Stored): Promise<Response> {
    return this.fetch(path, {
      method: 'POST',
      headers: { Authorization: `Bearer ${stored.access}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ refresh_token: stored.refresh }),
      cache: 'no-store',
    })
  }

  private toStored(user: string, response: Response, tokens: Tokens): Stored {
    // Lifetimes are measured on the server's own clock: this machine's may be minutes off.
    const served = Date.parse(response.headers.get('Date') ?? '')
    const now = this.now()
    const lifetime = tokens.expires_at * 1000 - (Number.isNaN(served) ? now : served)
    return { user, access: tokens.access_token, refresh: tokens.refresh_token, expires: now + lifetime }
  }

  private keep(stored: Stored): void {
    const changed = this.stored?.user !== stored.user
    this.stored = stored
    this.expired = false
    this.storage.setItem(storageKey, JSON.stringify(stored))
    this.renewInTime()
    if (changed) this.notify()
  }

  private end(expired: boolean): void {
    clearTimeout(this.timer)
    this.stored = undefined
    this.expired = expired
    this.storage.removeItem(storageKey)
    this.notify()
  }

  /** Renews early, because the backend forgets a sign-in soon after its access token. */
  private renewInTime(): void {
    clearTimeout(this.timer)
    const { stored } = this
    if (!stored) return
    // Spread, so that copies of a tab do not renew in the same instant.
    const early = renewBefore + Math.random() * 30_000
    const wait = Math.max(stored.expires - this.now() - early, 1000)
    this.timer = setTimeout(() => {
      this.refresh().catch(() => {
        this.timer = setTimeout(() => this.renewInTime(), 5000)
      })
    }, wait)
  }

  private notify(): void {
    for (const listener of this.listeners) listener()
  }
}

function read(storage: Storage): Stored | undefined {
  try {
    const value = JSON.parse(storage.getItem(storageKey) ?? 'null') as Stored | null
    return value && typeof value.refresh === 'string' ? value : undefined
  } catch {
    return undefined
  }
}

/** The user that a token is for. */
function subject(token: string): string {
  try {
    const text = atob((token.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/'))
    const claims = JSON.parse(new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0)))) as { sub?: string }
    return claims.sub ?? ''
  } catch {
    return ''
  }
}

/** btoa takes Latin-1 only; passwords are UTF-8. */
function base64(s: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(s)))
}

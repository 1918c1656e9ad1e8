import type { PageSession } from '../api/types'

/** Why a sign-in failed. */
export class SignInError extends Error {
  readonly reason: 'credentials' | 'network' | 'server'
  constructor(reason: SignInError['reason'], message: string) {
    super(message)
    this.reason = reason
  }
}

export type SignInState =
  | { phase: 'unknown'; /** Why the backend has not answered yet. */ reason?: string }
  | { phase: 'out'; /** The last sign-in ended without the user. */ ended: boolean }
  | { phase: 'in'; user: string; groups: readonly string[] }

export interface SessionOptions {
  fetch?: typeof fetch
  /** Tells the other tabs, which share the cookies. */
  channel?: Pick<BroadcastChannel, 'postMessage' | 'addEventListener'>
  /** Called when the sign-in was renewed, here or in another tab. */
  renewed?: () => void
  /** Runs a function while no other tab runs one. Not all browsers can, and none without https. */
  exclusively?: (f: () => Promise<boolean>) => Promise<boolean>
  now?: () => number
  random?: () => number
}

const path = '/api/lapwing/v1/session'
/** A sign-in is renewed so long before its end, in ms. */
const renewBefore = 45_000
/** Tabs renew at different moments, so that one does it for all. */
const spread = 30_000
/** Between two questions of a page to which the backend does not answer, in ms. */
const askAgain = 3000

/**
 * The sign-in of the page. Its tokens are in cookies that scripts cannot read; the page knows who is signed in and for
 * how long. All requests go through fetch, which adds the header that makes the backend look at the cookies.
 */
export class Session {
  private current: SignInState = { phase: 'unknown' }
  private renewing: Promise<boolean> | undefined
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly listeners = new Set<() => void>()
  private readonly send: typeof fetch
  private readonly channel: SessionOptions['channel']
  private readonly renewed: () => void
  private readonly exclusively: NonNullable<SessionOptions['exclusively']>
  private readonly now: () => number
  private readonly random: () => number
  /** When the sign-in ends, by this machine's clock. */
  private until = 0

  constructor(options: SessionOptions = {}) {
    this.send = options.fetch ?? ((...args) => fetch(...args))
    this.channel = options.channel
    this.renewed = options.renewed ?? (() => undefined)
    this.exclusively = options.exclusively ?? ((f) => f())
    this.now = options.now ?? Date.now
    this.random = options.random ?? Math.random
    this.channel?.addEventListener('message', (message) => {
      const said = message.data as PageSession | null
      if (said === null) this.out(false)
      else this.keep(said, true)
    })
  }

  get state(): SignInState {
    return this.current
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  /** Asks the backend who is signed in, for a page that has just been loaded, until it answers. */
  async begin(): Promise<void> {
    for (;;) {
      try {
        return await this.load()
      } catch (err) {
        this.set({ phase: 'unknown', reason: err instanceof Error ? err.message : String(err) })
        await new Promise((done) => setTimeout(done, askAgain))
      }
    }
  }

  private async load(): Promise<void> {
    const response = await this.ask('GET')
    if (response.ok) this.keep((await response.json()) as PageSession)
    else if (response.status !== 401) throw new SignInError('server', `the server answered ${response.status}`)
    else if (!(await this.renew())) this.out(false)
  }

  async signIn(start: { username: string; password: string } | { code: string; verifier: string } | { key: string }): Promise<void> {
    let response: Response
    try {
      response = await this.ask('POST', start)
    } catch (err) {
      throw new SignInError('network', String(err))
    }
    if (response.status === 401) throw new SignInError('credentials', 'unauthorized')
    if (!response.ok) throw new SignInError('server', (await response.text()).trim() || `the server answered ${response.status}`)
    const session = (await response.json()) as PageSession
    if ('key' in start)
      this.keep(session) // other tabs may have a sign-in of a person
    else this.announce(session)
  }

  async signOut(): Promise<void> {
    this.out(false)
    this.channel?.postMessage(null)
    try {
      await this.ask('DELETE')
    } catch {
      // The cookies stay until the browser is closed; at the backend the sign-in expires.
    }
  }

  /** fetch with the sign-in. An answer that it has ended renews it once. */
  fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init)
    request.headers.set('X-Lapwing-Page', '1')
    const again = request.clone()
    const response = await this.send(request)
    if (response.status !== 401 || this.current.phase !== 'in') return response
    return (await this.renew()) ? this.send(again) : response
  }

  /** Renews the sign-in, and reports whether there is one. */
  private renew(): Promise<boolean> {
    this.renewing ??= this.rotate().finally(() => {
      this.renewing = undefined
    })
    return this.renewing
  }

  private rotate(): Promise<boolean> {
    const before = this.until
    return this.exclusively(async () => {
      if (this.until > before && this.until > this.now()) return true // another tab has done it meanwhile
      return this.trade()
    })
  }

  private async trade(): Promise<boolean> {
    const response = await this.ask('PUT')
    if (response.ok) {
      this.announce((await response.json()) as PageSession)
      return true
    }
    if (response.status !== 400 && response.status !== 401) throw new Error(`renew the sign-in: the server answered ${response.status}`)
    if (this.current.phase === 'in') this.out(true)
    return false
  }

  private ask(method: string, body?: unknown): Promise<Response> {
    return this.send(path, {
      method,
      headers: { 'X-Lapwing-Page': '1', ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
      cache: 'no-store',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  private announce(session: PageSession): void {
    this.keep(session, true)
    this.channel?.postMessage(session)
  }

  private keep(session: PageSession, fresh = false): void {
    const before = this.current
    this.until = this.now() + session.expires * 1000
    const groups = session.groups ?? []
    if (before.phase !== 'in' || before.user !== session.user || before.groups.join() !== groups.join()) {
      this.set({ phase: 'in', user: session.user, groups })
    } else if (fresh) {
      this.renewed()
    }
    this.renewInTime()
  }

  private out(ended: boolean): void {
    clearTimeout(this.timer)
    this.set({ phase: 'out', ended })
  }

  private renewInTime(): void {
    clearTimeout(this.timer)
    const wait = Math.max(1000, this.until - this.now() - renewBefore - this.random() * spread)
    this.timer = setTimeout(() => {
      this.renew().catch(() => {
        this.timer = setTimeout(() => this.renewInTime(), 5000)
      })
    }, wait)
  }

  private set(state: SignInState): void {
    this.current = state
    for (const listener of this.listeners) listener()
  }
}

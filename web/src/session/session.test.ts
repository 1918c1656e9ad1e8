import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Session, SignInError, type Storage } from './session'

function memory(): Storage & { value: string | null } {
  return {
    value: null,
    getItem() {
      return this.value
    },
    setItem(_, value) {
      this.value = value
    },
    removeItem() {
      this.value = null
    },
  }
}

/** A backend that rotates tokens as the API says. Its clock is `skew` ahead of ours. */
function backend(skew = 0) {
  let n = 0
  const calls: { path: string; authorization: string | null; body: unknown }[] = []
  const state = { status: 200, down: false }
  const fake = async (path: unknown, init?: RequestInit) => {
    const authorization = new Headers(init?.headers).get('Authorization')
    calls.push({ path: String(path), authorization, body: init?.body ? JSON.parse(String(init.body)) : undefined })
    if (state.down) throw new TypeError('unreachable')
    if (state.status !== 200) return new Response('no', { status: state.status })
    if (path === '/auth/logout') return new Response(null, { status: 200 })
    n++
    const served = Date.now() + skew
    const tokens = { access_token: `a${n}`, refresh_token: `r${n}`, expires_at: Math.floor(served / 1000) + 300 }
    return Response.json(tokens, { headers: { Date: new Date(served).toUTCString() } })
  }
  return { fetch: fake as typeof fetch, calls, state }
}

describe('Session', () => {
  beforeEach(() => {
    vi.useFakeTimers()
    vi.setSystemTime(1_700_000_000_000)
  })
  afterEach(() => void vi.useRealTimers())

  test('signs in with Basic credentials in UTF-8 and survives a reload', async () => {
    const b = backend()
    const storage = memory()
    const session = new Session({ storage, fetch: b.fetch })
    const listener = vi.fn()
    session.subscribe(listener)
    await session.signIn('admin', 'pä:ss')
    expect(b.calls[0]).toMatchObject({ path: '/auth', authorization: 'Basic YWRtaW46cMOkOnNz' })
    expect(session.user).toBe('admin')
    expect(listener).toHaveBeenCalledTimes(1)
    const again = new Session({ storage, fetch: b.fetch })
    expect(again.user).toBe('admin')
    expect(await again.token()).toBe('a1')
  })

  test.each([
    [401, 'credentials'],
    [503, 'server'],
  ])('status %i is a problem of %s', async (status, reason) => {
    const b = backend()
    b.state.status = status
    const session = new Session({ storage: memory(), fetch: b.fetch })
    await expect(session.signIn('a', 'b')).rejects.toMatchObject({ reason })
    b.state.down = true
    await expect(session.signIn('a', 'b')).rejects.toBeInstanceOf(SignInError)
    expect(session.user).toBeUndefined()
  })

  test('renews before the end, with the old access token and the refresh token', async () => {
    const b = backend()
    const session = new Session({ storage: memory(), fetch: b.fetch })
    await session.signIn('admin', 'x')
    await vi.advanceTimersByTimeAsync(300_000)
    expect(b.calls[1]).toEqual({ path: '/auth/token', authorization: 'Bearer a1', body: { refresh_token: 'r1' } })
    expect(await session.token()).toBe('a2')
    expect(b.calls).toHaveLength(2)
  })

  test.each([-3_600_000, 3_600_000])('a clock that is %i ms off does not matter', async (skew) => {
    const b = backend(skew)
    const session = new Session({ storage: memory(), fetch: b.fetch })
    await session.signIn('admin', 'x')
    await vi.advanceTimersByTimeAsync(200_000)
    expect(await session.token()).toBe('a1')
    await vi.advanceTimersByTimeAsync(100_000)
    expect(await session.token()).toBe('a2')
  })

  test('a stale token is renewed once for many askers', async () => {
    const b = backend()
    const session = new Session({ storage: memory(), fetch: b.fetch })
    await session.signIn('admin', 'x')
    expect(await Promise.all([session.token('a1'), session.token('a1'), session.token('a1')])).toEqual(['a2', 'a2', 'a2'])
    expect(await session.token('a1')).toBe('a2')
    expect(b.calls).toHaveLength(2)
  })

  test('a refused renewal ends the session; an unreachable backend does not', async () => {
    const b = backend()
    const storage = memory()
    const session = new Session({ storage, fetch: b.fetch })
    await session.signIn('admin', 'x')
    b.state.down = true
    await expect(session.token('a1')).rejects.toThrow('unreachable')
    expect(session.user).toBe('admin')
    b.state.down = false
    b.state.status = 401
    expect(await session.token('a1')).toBeUndefined()
    expect(session.user).toBeUndefined()
    expect(session.expired).toBe(true)
    expect(storage.value).toBeNull()
  })

  test('signing out tells the backend and forgets at once', async () => {
    const b = backend()
    const storage = memory()
    const session = new Session({ storage, fetch: b.fetch })
    await session.signIn('admin', 'x')
    const done = session.signOut()
    expect(session.user).toBeUndefined()
    expect(storage.value).toBeNull()
    await done
    expect(b.calls.at(-1)).toEqual({ path: '/auth/logout', authorization: 'Bearer a1', body: { refresh_token: 'r1' } })
    expect(session.expired).toBe(false)
  })

  test('a copied tab takes over the tokens that the other has renewed', async () => {
    const b = backend()
    const listeners: ((message: MessageEvent) => void)[] = []
    const channel = {
      postMessage: (data: unknown) => listeners.forEach((listener) => listener({ data } as MessageEvent)),
      addEventListener: (_: string, listener: unknown) => void listeners.push(listener as (message: MessageEvent) => void),
    }
    const storage = memory()
    const one = new Session({ storage, fetch: b.fetch, channel })
    await one.signIn('admin', 'x')
    const copied = memory()
    copied.value = storage.value
    const two = new Session({ storage: copied, fetch: b.fetch, channel })
    expect(await one.token('a1')).toBe('a2')
    expect(await two.token('a1')).toBe('a2')
    expect(b.calls).toHaveLength(2)
  })

  test('rubbish in the storage is no sign-in', () => {
    const storage = memory()
    storage.value = '{not json'
    expect(new Session({ storage }).user).toBeUndefined()
  })
})

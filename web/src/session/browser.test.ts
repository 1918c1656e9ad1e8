import { describe, expect, test } from 'vitest'
import { BrowserSignIn, type Storage } from './browser'
import { Session } from './session'

function memory(): Storage {
  const values = new Map<string, string>()
  return {
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => void values.set(key, value),
    removeItem: (key) => void values.delete(key),
  }
}

async function challengeOf(verifier: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier)))
  return btoa(String.fromCharCode(...digest)).replace(/[+/=]/g, (c) => ({ '+': '-', '/': '_' })[c] ?? '')
}

/** A backend that takes one code with its verifier. */
function backend() {
  const state = { challenge: '', down: false }
  const fake = async (path: unknown, init?: RequestInit) => {
    if (state.down) throw new TypeError('unreachable')
    if (path === '/api/lapwing/v1/auth/providers') return Response.json([{ name: 'sso', type: 'oidc', title: 'Example' }])
    expect([path, init?.method]).toEqual(['/api/lapwing/v1/session', 'POST'])
    const { code, verifier } = JSON.parse(String(init?.body)) as { code: string; verifier: string }
    if (code !== 'good' || (await challengeOf(verifier)) !== state.challenge) return new Response('Unauthorized', { status: 401 })
    return Response.json({ user: 'sso:alice', groups: [], expires: 300 })
  }
  return { fetch: fake as typeof fetch, state }
}

function page(b: ReturnType<typeof backend>, storage: Storage) {
  const session = new Session({ fetch: b.fetch })
  return { session, signIn: new BrowserSignIn({ session, storage, fetch: b.fetch }) }
}

function userOf(session: Session): string | undefined {
  return session.state.phase === 'in' ? session.state.user : undefined
}

describe('BrowserSignIn', () => {
  test('goes to the provider and comes back signed in', async () => {
    const b = backend()
    const storage = memory()
    const before = page(b, storage)
    expect(await before.signIn.providers()).toMatchObject([{ name: 'sso', title: 'Example' }])
    const to = new URL(await before.signIn.begin('sso', '/events?q=disk'), 'http://x')
    expect(to.pathname).toBe('/api/enterprise/authentication/v2/oidc/authorize')
    expect(to.searchParams.get('callback')).toBe('/')
    expect(to.searchParams.get('provider')).toBe('sso')
    b.state.challenge = to.searchParams.get('challenge') ?? ''
    const state = to.searchParams.get('state') ?? ''

    const after = page(b, storage) // the page is loaded anew
    expect(await after.signIn.finish(new URLSearchParams({ code: 'good', state: 'other' }))).toBeUndefined()
    expect(userOf(after.session)).toBeUndefined()
    expect(await after.signIn.finish(new URLSearchParams({ code: 'good', state }))).toBe('/events?q=disk')
    expect(userOf(after.session)).toBe('sso:alice')
    expect(after.signIn.error).toBeUndefined()
    expect(await after.signIn.finish(new URLSearchParams({ code: 'good', state }))).toBeUndefined()
  })

  test.each([
    [{ code: 'bad' }, 'credentials'],
    [{ error: 'access_denied' }, 'server'],
  ])('tells why it came back with %j', async (answer, reason) => {
    const b = backend()
    const { session, signIn } = page(b, memory())
    const state = new URL(await signIn.begin('sso', '/events?q=disk'), 'http://x').searchParams.get('state') ?? ''
    expect(await signIn.finish(new URLSearchParams({ ...(answer as Record<string, string>), state }))).toBe('/events?q=disk')
    expect(userOf(session)).toBeUndefined()
    expect(signIn.error).toMatchObject({ reason })
  })

  test('has no providers while the backend is down, and no sign-in out of nowhere', async () => {
    const b = backend()
    b.state.down = true
    const { signIn } = page(b, memory())
    expect(await signIn.providers()).toEqual([])
    expect(await signIn.finish(new URLSearchParams({ code: 'good', state: 'x' }))).toBeUndefined()
    expect(await signIn.finish(new URLSearchParams())).toBeUndefined()
  })
})

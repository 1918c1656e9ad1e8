import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Session, SignInError } from './session'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A backend with one sign-in, whose access lasts for 300 s. */
function backend() {
  const asked: string[] = []
  let signedIn = false
  let access = false
  const answer = (status: number, body?: object) => new Response(body && JSON.stringify(body), { status })
  const who = { user: 'ann', groups: ['ops'], expires: 300 }
  const fetch = (async (input: RequestInfo | URL, init?: RequestInit) => {
    const request = new Request(
      new URL(input instanceof Request ? input.url : input, 'http://host'),
      input instanceof Request ? input : init,
    )
    const path = new URL(request.url).pathname
    asked.push(`${request.method} ${path}`)
    if (request.headers.get('X-Lapwing-Page') !== '1') return answer(400)
    if (path !== '/api/lapwing/v1/session') return answer(access ? 200 : 401, {})
    switch (request.method) {
      case 'POST': {
        const body = (await request.json()) as { password?: string; code?: string }
        if (body.password !== 'right' && body.code !== 'c') return answer(401)
        signedIn = access = true
        return answer(200, who)
      }
      case 'GET':
        return access ? answer(200, who) : answer(401)
      case 'PUT':
        access = signedIn
        return signedIn ? answer(200, who) : answer(401)
      default:
        signedIn = access = false
        return new Response(null, { status: 204 })
    }
  }) as typeof globalThis.fetch
  return {
    asked,
    fetch,
    expire: () => (access = false),
    end: () => (signedIn = access = false),
  }
}

function channels() {
  const listeners: ((message: MessageEvent) => void)[] = []
  return () => {
    let own: ((message: MessageEvent) => void) | undefined
    return {
      postMessage: (data: unknown) => listeners.filter((l) => l !== own).forEach((l) => l(new MessageEvent('message', { data }))),
      addEventListener: (_: string, listener: unknown) => {
        own = listener as typeof own
        listeners.push(listener as (message: MessageEvent) => void)
      },
    } as Pick<BroadcastChannel, 'postMessage' | 'addEventListener'>
  }
}

test('a page that is loaded asks who is signed in', async () => {
  const b = backend()
  const session = new Session({ fetch: b.fetch })
  expect(session.state.phase).toBe('unknown')
  await session.begin()
  expect(session.state).toEqual({ phase: 'out', ended: false })
  await session.signIn({ username: 'ann', password: 'right' })
  expect(session.state).toEqual({ phase: 'in', user: 'ann', groups: ['ops'] })

  b.expire() // the refresh token is still good
  const again = new Session({ fetch: b.fetch })
  await again.begin()
  expect(again.state.phase).toBe('in')
})

test('a page asks until the backend answers', async () => {
  const b = backend()
  let down = true
  const session = new Session({ fetch: (...args) => (down ? Promise.reject(new TypeError('refused')) : b.fetch(...args)) })
  void session.begin()
  await vi.advanceTimersByTimeAsync(4000)
  expect(session.state).toEqual({ phase: 'unknown', reason: 'refused' })
  down = false
  await vi.advanceTimersByTimeAsync(4000)
  expect(session.state).toEqual({ phase: 'out', ended: false })
})

test('two tabs renew once, and each tells its connection', async () => {
  const b = backend()
  const channel = channels()
  let turn: Promise<unknown> = Promise.resolve()
  const exclusively = (f: () => Promise<boolean>) => {
    const mine = turn.then(f)
    turn = mine
    return mine
  }
  const renewed = [vi.fn(), vi.fn()]
  const [one, other] = renewed.map((renewed) => new Session({ fetch: b.fetch, channel: channel(), exclusively, renewed, random: () => 0 }))
  await one?.signIn({ username: 'ann', password: 'right' })
  expect(other?.state.phase).toBe('in')
  await vi.advanceTimersByTimeAsync(256_000)
  expect(b.asked.filter((path) => path === 'PUT /api/lapwing/v1/session').length).toBe(1)
  for (const told of renewed) expect(told).toHaveBeenCalledTimes(1)
})

test('a wrong password, and a backend that does not answer', async () => {
  const session = new Session({ fetch: backend().fetch })
  await expect(session.signIn({ username: 'ann', password: 'wrong' })).rejects.toMatchObject({ reason: 'credentials' })
  const dead = new Session({ fetch: () => Promise.reject(new TypeError('refused')) })
  await expect(dead.signIn({ username: 'ann', password: 'right' })).rejects.toBeInstanceOf(SignInError)
})

test('a provider signs in with a code', async () => {
  const session = new Session({ fetch: backend().fetch })
  await session.signIn({ code: 'c', verifier: 'v' })
  expect(session.state.phase).toBe('in')
})

test('a sign-in is renewed before its end', async () => {
  const b = backend()
  const session = new Session({ fetch: b.fetch, random: () => 0 })
  await session.signIn({ username: 'ann', password: 'right' })
  await vi.advanceTimersByTimeAsync(254_000)
  expect(b.asked).not.toContain('PUT /api/lapwing/v1/session')
  await vi.advanceTimersByTimeAsync(2_000)
  expect(b.asked).toContain('PUT /api/lapwing/v1/session')
})

test('a request that is refused renews the sign-in once', async () => {
  const b = backend()
  const session = new Session({ fetch: b.fetch })
  await session.signIn({ username: 'ann', password: 'right' })
  b.expire()
  const answers = await Promise.all([session.fetch('http://host/a'), session.fetch('http://host/b', { method: 'POST', body: 'x' })])
  expect(answers.map((a) => a.status)).toEqual([200, 200])
  expect(b.asked.filter((a) => a.startsWith('PUT'))).toHaveLength(1)

  b.end()
  expect((await session.fetch('http://host/a')).status).toBe(401)
  expect(session.state).toEqual({ phase: 'out', ended: true })
})

test('tabs share a sign-in', async () => {
  const b = backend()
  const channel = channels()
  const [one, two] = [new Session({ fetch: b.fetch, channel: channel() }), new Session({ fetch: b.fetch, channel: channel() })]
  await one.signIn({ username: 'ann', password: 'right' })
  expect(two.state.phase).toBe('in')
  await two.signOut()
  expect(one.state).toEqual({ phase: 'out', ended: false })
  expect(b.asked).toContain('DELETE /api/lapwing/v1/session')
})

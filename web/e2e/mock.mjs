// A backend in one file: as much of the API as the page uses, over a make-believe fleet. It serves front-end
// development (`npm run dev:mock`) and the end-to-end test when no real backend is named.

import { randomUUID } from 'node:crypto'
import { createReadStream, existsSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { fleet, output, random } from './fleet.mjs'

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }
const csp =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const nowSeconds = () => Math.floor(Date.now() / 1000)
const keyOf = (namespace, entity, check) => [namespace, entity, check].join('\0')

/**
 * Options: events (how many at the start), rate (results a second), tokenSeconds, user, password, host, port,
 * heartbeat (ms). Returns its URL and means to make trouble.
 */
export async function startMock(options = {}) {
  const o = {
    events: 1200,
    rate: 20,
    tokenSeconds: 300,
    user: 'admin',
    password: 'P@ssw0rd!',
    host: '127.0.0.1',
    port: 0,
    heartbeat: 5_000,
    ...options,
  }
  const events = new Map()
  for (const event of fleet(o.events, nowSeconds())) {
    events.set(keyOf(event.entity.metadata.namespace, event.entity.metadata.name, event.check.metadata.name), event)
  }
  const namespaces = ['default', 'production', 'staging', 'empty']
  // A user besides the administrator, with the same password, who may read one namespace only.
  const viewer = { name: 'viewer', namespace: 'staging' }
  const access = new Map() // token -> { user, expires, session }
  const sessions = new Map() // session -> current refresh token
  const streams = new Set()
  let refusing = false

  function issue(user, session = randomUUID()) {
    const token = `mock.${randomUUID()}`
    const expires = nowSeconds() + o.tokenSeconds
    const refresh = `refresh.${session}.${randomUUID()}`
    access.set(token, { user, expires, session })
    sessions.set(session, refresh)
    return { access_token: token, expires_at: expires, refresh_token: refresh }
  }

  function json(res, status, body) {
    res.writeHead(status, { 'Content-Type': 'application/json' })
    res.end(body === undefined ? undefined : JSON.stringify(body))
  }
  function plain(res, status, body) {
    res.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' })
    res.end(body)
  }

  async function body(req) {
    let s = ''
    for await (const chunk of req) s += chunk
    return JSON.parse(s)
  }

  function write(stream, type, data) {
    return stream.res.write(`event: ${type}\ndata: ${data}\n\n`)
  }
  function publish(type, namespace, data) {
    if (streams.size === 0) return
    const text = JSON.stringify(data)
    for (const stream of streams) {
      if (stream.namespace !== '-' && stream.namespace !== namespace) continue
      if (!stream.synced) stream.backlog.push([type, text])
      else write(stream, type, text)
    }
  }

  function merge(event) {
    const { namespace, name } = event.entity.metadata
    const key = keyOf(namespace, name, event.check.metadata.name)
    const before = events.get(key)?.check
    const { check } = event
    check.status ??= 0
    check.executed ||= nowSeconds()
    const history = [...(before?.history ?? []), { status: check.status, executed: check.executed }].slice(-21)
    const same = history.length > 1 && history[history.length - 2].status === check.status
    check.occurrences = same ? (before?.occurrences ?? 0) + 1 : 1
    check.history = history
    check.state = check.status === 0 ? 'passing' : 'failing'
    check.last_ok = check.status === 0 ? check.executed : (before?.last_ok ?? 0)
    check.is_silenced = before?.is_silenced ?? false
    if (before?.silenced) check.silenced = before.silenced
    event.timestamp ||= nowSeconds()
    event.id ??= randomUUID()
    event.entity.entity_class ??= 'proxy'
    events.set(key, event)
    publish('event', namespace, event)
  }

  function drained(res) {
    return new Promise((done) => {
      const end = () => {
        res.off('drain', end).off('close', end)
        done()
      }
      res.on('drain', end).on('close', end)
    })
  }

  async function stream(res, namespace) {
    res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' })
    const self = { res, namespace, synced: false, backlog: [] }
    streams.add(self)
    const beat = setInterval(() => res.write(': heartbeat\n\n'), o.heartbeat)
    res.on('close', () => {
      clearInterval(beat)
      streams.delete(self)
    })
    for (const event of [...events.values()]) {
      if (namespace !== '-' && event.entity.metadata.namespace !== namespace) continue
      if (res.destroyed) return
      if (!write(self, 'event', JSON.stringify(event))) await drained(res)
    }
    for (const [type, text] of self.backlog) write(self, type, text)
    self.synced = true
    write(self, 'synced', '{}')
  }

  async function handle(req, res) {
    const url = new URL(req.url, 'http://mock')
    const authorization = req.headers.authorization ?? ''
    const bearer = authorization.startsWith('Bearer ') ? authorization.slice(7) : undefined

    if (url.pathname === '/api/lapwing/v1/auth/providers') return json(res, 200, [])
    if (url.pathname === '/auth') {
      const [user, password] = Buffer.from(authorization.replace(/^Basic /, ''), 'base64').toString().split(/:(.*)/s)
      if ((user !== o.user && user !== viewer.name) || password !== o.password) return plain(res, 401, 'Unauthorized\n')
      return json(res, 200, issue(user))
    }
    if (url.pathname === '/auth/token' || url.pathname === '/auth/logout') {
      const { refresh_token: refresh = '' } = await body(req)
      const session = refresh.split('.')[1]
      const holder = access.get(bearer)
      if (!holder || holder.session !== session) return plain(res, 401, 'Request unauthorized\n')
      if (!sessions.has(session)) return plain(res, 401, 'Unauthorized\n')
      const current = sessions.get(session) === refresh
      if (!current || url.pathname === '/auth/logout') sessions.delete(session)
      if (!current) return plain(res, 400, 'invalid access token\n')
      return url.pathname === '/auth/logout' ? json(res, 200) : json(res, 200, issue(holder.user, session))
    }
    if (!url.pathname.startsWith('/api/')) return file(url.pathname, res)

    const holder = access.get(bearer)
    if (!bearer) return json(res, 401, { Code: 5, Message: 'bad credentials' })
    if (!holder || holder.expires <= nowSeconds()) return json(res, 401, { Code: 5, Message: 'invalid credentials' })

    const parts = url.pathname.split('/').map(decodeURIComponent).slice(2)
    const may = (namespace) => holder.user === o.user || namespace === viewer.namespace
    if (parts.join('/') === 'core/v2/namespaces') return json(res, 200, namespaces.filter(may).map((name) => ({ name })))
    const [group, version, , namespace, kind, entity, check] = parts
    if (!may(namespace)) return json(res, 403, { Code: 4, Message: 'unauthorized to perform action' })
    if (kind !== 'events') return json(res, 404, { code: 2, message: 'not found' })
    if (group === 'lapwing' && version === 'v1' && entity === 'stream') {
      return refusing ? plain(res, 503, 'not now\n') : stream(res, namespace)
    }
    const key = keyOf(namespace, entity, check)
    if (req.method === 'POST' || req.method === 'PUT') {
      const event = await body(req)
      event.entity.metadata.namespace ??= namespace
      event.check.metadata.namespace ??= namespace
      merge(event)
      return json(res, 201)
    }
    if (check === undefined) {
      return json(res, 200, [...events.values()].filter((e) => e.entity.metadata.namespace === namespace))
    }
    if (!events.has(key)) return json(res, 404, { message: 'not found', code: 2 })
    if (req.method === 'DELETE') {
      events.delete(key)
      publish('delete', namespace, { namespace, entity, check })
      res.writeHead(204)
      return res.end()
    }
    return json(res, 200, events.get(key))
  }

  function file(path, res) {
    const name = normalize(join(dist, path === '/' ? 'index.html' : path))
    if (!name.startsWith(dist) || !existsSync(name) || !statSync(name).isFile()) return plain(res, 404, 'not found\n')
    res.writeHead(200, { 'Content-Type': types[extname(name)] ?? 'application/octet-stream', 'Content-Security-Policy': csp })
    return createReadStream(name).pipe(res)
  }

  const server = createServer((req, res) => {
    Promise.resolve(handle(req, res)).catch((err) => {
      if (!res.headersSent) plain(res, 500, String(err))
    })
  })
  await new Promise((done) => server.listen(o.port, o.host, done))

  // Results come in ticks, as from many agents: most repeat the status, a few change it.
  const next = random(11)
  const keys = [...events.keys()]
  let owed = 0
  let last = Date.now()
  const ticker = setInterval(() => {
    owed = Math.min(owed + ((Date.now() - last) / 1000) * o.rate, o.rate)
    last = Date.now()
    for (; owed >= 1 && keys.length > 0; owed--) {
      const old = events.get(keys[Math.floor(next() * keys.length)])
      if (!old) continue
      const { name } = old.check.metadata
      const bad = old.check.status !== 0 ? next() > 0.25 : next() < 0.012
      const status = !bad ? 0 : old.check.status || ({ load: 1, memory: 1, certificate: 1, keepalive: 1, ntp: 3 }[name] ?? 2)
      const now = nowSeconds()
      merge({
        ...old,
        id: undefined,
        timestamp: now,
        check: { ...old.check, status, executed: now, output: output(name, old.entity.metadata.name, bad, now, next) },
      })
    }
  }, 20)

  const each = (f) => [...streams].forEach(f)
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** Cuts every stream as a dying connection does. */
    drop: () => each((s) => s.res.destroy()),
    overflow: () =>
      each((s) => {
        write(s, 'overflow', '{}')
        s.res.end()
      }),
    /** Ends every session, as a backend does whose store was lost. */
    forget: () => {
      access.clear()
      sessions.clear()
    },
    /** Refuses new streams, or stops doing so. */
    refuse: (on) => {
      refusing = on
    },
    close: () => {
      clearInterval(ticker)
      each((s) => s.res.destroy())
      server.closeAllConnections()
      return new Promise((done) => server.close(done))
    },
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await startMock({
    port: Number(process.env.PORT ?? 8080),
    events: Number(process.env.MOCK_EVENTS ?? 1200),
    rate: Number(process.env.MOCK_RATE ?? 20),
    tokenSeconds: Number(process.env.MOCK_TOKEN_SECONDS ?? 300),
  })
  console.log(`mock backend on ${url}, user admin, password P@ssw0rd!`)
}

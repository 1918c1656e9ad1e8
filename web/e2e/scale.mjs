// How the page takes a large fleet: `make bench-page`. It starts a backend, plays agents with `lapwing load` until the backend
// has ENTITIES entities and EVENTS events, keeps RATE results a second coming, and measures in Chromium, on the same cores.
// It fails if a budget is exceeded.

import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const entities = Number(process.env.ENTITIES ?? 40_000)
const events = Number(process.env.EVENTS ?? 400_000)
const rate = Number(process.env.RATE ?? 5000)
/** A backend here may have 20,000 files open: the other entities are proxies. */
const agents = Math.min(Number(process.env.AGENTS ?? 15_000), entities)
const checks = Math.ceil(events / agents)
const binary = new URL('../../bin/lapwing', import.meta.url).pathname
const [user, password] = ['admin', 'P@ssw0rd!']

const budget = { paint: 1000, interaction: 100, visible: 1000, memory: 250 }

const directory = mkdtempSync(join(tmpdir(), 'lapwing-scale-'))
const children = []
const log = openSync(join(directory, 'log'), 'a')
let browser

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })

function start(args, env = {}) {
  const child = spawn(binary, args, { env: { ...process.env, ...env }, stdio: ['ignore', log, log] })
  children.push(child)
  return child
}

async function until(what, condition, timeout = 120_000) {
  const end = Date.now() + timeout
  for (;;) {
    const value = await condition().catch(() => undefined)
    if (value) return value
    if (Date.now() > end) throw new Error(`${what}: not within ${timeout / 1000} s`)
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}

async function main() {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const agentPort = await freePort()
  start(['backend', '--state-dir', join(directory, 'state'), '--api-listen-address', `127.0.0.1:${port}`, '--agent-port', `${agentPort}`], {
    LAPWING_BACKEND_CLUSTER_ADMIN_USERNAME: user,
    LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD: password,
  })
  await until('the backend starts', async () => (await fetch(`${url}/ready`)).ok)
  const token = (await (await fetch(`${url}/auth`, { headers: { Authorization: `Basic ${btoa(`${user}:${password}`)}` } })).json())
    .access_token
  let bearer = { Authorization: `Bearer ${token}` }
  const post = (body) =>
    fetch(`${url}/api/core/v2/namespaces/default/events`, {
      method: 'POST',
      headers: { ...bearer, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })

  const proxies = entities - agents
  const eventOf = (i, status, output) => ({
    entity: { entity_class: 'proxy', metadata: { name: `switch-${i}`, namespace: 'default', labels: { rack: `rack-${i % 400}` } } },
    check: { metadata: { name: 'ping', namespace: 'default' }, status, output, interval: 60, executed: Math.floor(Date.now() / 1000) },
  })
  let next = 0
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      while (next < proxies) {
        const i = next++
        const answer = await post(eventOf(i, i % 50 === 0 ? 2 : 0, 'a reply after 2 ms'))
        if (!answer.ok) throw new Error(`proxy ${i}: ${answer.status} ${await answer.text()}`)
      }
    }),
  )
  console.log(`${proxies} proxy entities are there`)

  start([
    'load',
    '--api-url',
    url,
    '--api-user',
    user,
    '--api-password',
    password,
    '--backends',
    `ws://127.0.0.1:${agentPort}`,
    '--source-addresses',
    '127.0.0.2,127.0.0.3',
    '--count',
    `${agents}`,
    '--checks',
    `${checks}`,
    '--check-interval',
    `${Math.ceil((agents * checks) / rate)}s`,
    '--duration',
    '0',
    '--connect-rate',
    '1000',
    '--statuses',
    '0=96,1=2,2=2',
    '--flap-rate',
    '0.02',
    '--probes',
    '0',
    '--no-verify',
    '--keep',
    '--protocol',
    'lapwing',
    '--event-bytes',
    '120',
  ])
  const view = async (selector, limit = 1) => {
    const asked = new URLSearchParams({ limit, ...(selector === '' ? {} : { fieldSelector: `event.${selector}` }) })
    const answer = await fetch(`${url}/api/lapwing/v1/namespaces/-/events/view?${asked}`, { headers: bearer })
    if (answer.status === 401) {
      const again = await (await fetch(`${url}/auth`, { headers: { Authorization: `Basic ${btoa(`${user}:${password}`)}` } })).json()
      bearer = { Authorization: `Bearer ${again.access_token}` }
    }
    return answer.json()
  }
  const counted = async () => (await view('', 0)).counts?.total ?? 0
  let seen = 0
  await until(
    `${events} events`,
    async () => {
      seen = await counted()
      return seen >= events
    },
    900_000,
  ).catch((err) => {
    throw new Error(`${err.message}; there are ${seen}`)
  })
  console.log(`${seen} events are there`)
  // The first results of all agents have come at once. What is measured is the fleet that goes on.
  await until(
    'the backend answers as usual',
    async () => {
      for (let i = 0; i < 5; i++) {
        const [output, begin] = [`settled ${Date.now()}`, performance.now()]
        await post(eventOf(2, 0, output))
        await until('the event', async () => (await view('entity.name == switch-2')).rows?.[0]?.output === output, 30_000)
        if (performance.now() - begin > 1000) return false
      }
      return true
    },
    300_000,
  )
  const results = []
  const figure = (name, value, unit, most) => {
    results.push({ name, value, unit, most })
    console.log(`${name}: ${value} ${unit}${most === undefined ? '' : ` (at most ${most})`}`)
  }
  const ingested = async () => {
    const text = await (await fetch(`${url}/metrics`)).text()
    return Number(/^lapwing_events_folded_total (\S+)/m.exec(text)?.[1])
  }
  const [before, at] = [await ingested(), Date.now()]

  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  })
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  // The tab's socket, for the eight hours of messages below.
  await context.addInitScript(() => {
    const Real = window.WebSocket
    window.WebSocket = class extends Real {
      constructor(...args) {
        super(...args)
        window.socket = this
        this.addEventListener('message', (event) => {
          if (/^\d+:event: window/.test(event.data)) window.lastWindow = event.data
        })
      }
    }
  })
  const page = await context.newPage()
  await page.goto(url)
  await page.getByRole('textbox', { name: 'Username' }).fill(user)
  await page.getByRole('textbox', { name: 'Password' }).fill(password)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('navigation').first().waitFor()
  await page.goto('about:blank')

  const ready = '[data-entity]'
  for (const [screen, path, most] of [
    ['now', '/', budget.paint],
    ['events', '/events', budget.paint],
    ['events with a search that is new to the backend', '/events?status=failing', undefined],
  ]) {
    const cold = await context.newPage()
    const cdp = await context.newCDPSession(cold)
    await cdp.send('Network.setCacheDisabled', { cacheDisabled: true })
    await cold.goto(url + path, { waitUntil: 'commit' })
    await cold.locator(ready).first().waitFor()
    const paint = await cold.evaluate(
      (selector) =>
        new Promise((resolve) => {
          const seen = () =>
            document.querySelector(selector) ? requestAnimationFrame(() => resolve(performance.now())) : requestAnimationFrame(seen)
          seen()
        }),
      ready,
    )
    figure(`first useful paint of ${screen}, cold`, Math.round(paint), 'ms', most)
    await cold.close()
  }

  await page.goto(`${url}/events`)
  const row = page.locator('[role=row][data-entity]')
  await row.first().waitFor()
  await page.getByTestId('badge').getByText('Live').waitFor()
  // From a key to the frame after it, in the page.
  const times = await page.evaluate(async () => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))
    const key = (key) =>
      document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, code: key, bubbles: true, cancelable: true }))
    const grid = document.querySelector('[role=grid]')
    const measured = []
    const time = async (f) => {
      await new Promise((resolve) => setTimeout(resolve, 50))
      const begin = performance.now()
      f()
      await frame()
      measured.push(performance.now() - begin)
    }
    for (let i = 0; i < 60; i++) await time(() => key('j'))
    for (let i = 0; i < 60; i++) await time(() => (grid.scrollTop = Math.floor((grid.scrollHeight * i) / 60)))
    grid.scrollTop = 0
    for (let i = 0; i < 20; i++) {
      await time(() => key('x'))
      await time(() => key('j'))
    }
    return measured
  })
  const p = (list, q) => Math.round([...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))])
  figure(`list interaction, p95 of ${times.length}`, p(times, 0.95), 'ms', budget.interaction)

  const answers = []
  for (let i = 0; i < 12; i++) {
    const q = ['status == 2', 'label.rack == rack-7', 'check == ping', ''][i % 4]
    const begin = performance.now()
    const sorted = await fetch(
      `${url}/api/lapwing/v1/namespaces/-/events/view?limit=100&sort=${['severity', '-since', 'entity'][i % 3]}${q === '' ? '' : `&fieldSelector=${encodeURIComponent(q.replace('status', 'event.check.status').replace('label.', 'event.labels.').replace('check ==', 'event.check.name =='))}`}`,
      { headers: bearer },
    )
    await sorted.arrayBuffer()
    answers.push(performance.now() - begin)
  }
  figure('search, sort and count at the server, median and longest of 12', `${p(answers, 0.5)} and ${p(answers, 1)}`, 'ms')

  await page.goto(`${url}/events?q=${encodeURIComponent('entity == switch-1')}`)
  await page.locator('[role=row][data-entity=switch-1]').waitFor()
  // Both clocks are this machine's. The page looks before each of its frames.
  await page.evaluate(() => {
    window.seen = {}
    const look = () => {
      const output = document.querySelector('[data-entity=switch-1] [role=gridcell]:nth-of-type(5)')?.textContent
      if (output) window.seen[output] ??= performance.timeOrigin + performance.now()
      requestAnimationFrame(look)
    }
    look()
  })
  const delays = []
  for (let i = 0; i < 40; i++) {
    const [output, begin] = [`probe ${i}`, Date.now()]
    const answer = await post(eventOf(1, (i % 2) * 2, output))
    if (!answer.ok) throw new Error(`probe: ${answer.status}`)
    const at = await until(output, () => page.evaluate((output) => window.seen[output], output), 20_000)
    delays.push(at - begin)
  }
  figure('a change is visible after it was sent, p95 of 40', p(delays, 0.95), 'ms', budget.visible)

  await page.goto(`${url}/events?status=failing`)
  await row.first().waitFor()
  const memory = async () => {
    const cdp = await context.newCDPSession(page)
    await cdp.send('HeapProfiler.enable')
    await cdp.send('HeapProfiler.collectGarbage')
    const { usedSize } = await cdp.send('Runtime.getHeapUsage')
    await cdp.detach()
    const rss = execFileSync('ps', ['-eo', 'rss,args'], { encoding: 'utf8' })
      .split('\n')
      .filter((line) => line.includes('--type=renderer'))
      .map((line) => Number(line.trim().split(/\s+/)[0]))
    return [Math.round(usedSize / 2 ** 20), Math.round(Math.max(...rss) / 1024)]
  }
  console.log('memory of the tab before, heap and resident:', (await memory()).join(' and '), 'MiB')
  // Eight hours have 115,200 messages, four a second: the newest window with other rows in it, as fast as the page takes them.
  const messages = Number(process.env.MESSAGES ?? 8 * 3600 * 4)
  await until('a window has come', () => page.evaluate(() => window.lastWindow !== undefined))
  await page.evaluate(async (n) => {
    const { lastWindow, socket } = window
    const id = lastWindow.slice(0, lastWindow.indexOf(':'))
    for (let i = 0; i < n; i++) {
      const rows = Array.from({ length: 20 }, (_, k) => ({
        namespace: 'default',
        entity: `switch-${(i * 20 + k) % 25_000}`,
        check: 'ping',
        status: (i + k) % 3,
        state: 'failing',
        since: 0,
        occurrences: 1,
        last_ok: 0,
        timestamp: i,
        interval: 60,
        output: `result ${i}`,
        history: [0, 1, 2],
        silenced: [],
      }))
      const order = rows.map(({ namespace, entity, check }) => `${namespace}/${entity}/${check}`)
      const window = { counts: { critical: i % 50, warning: 0, unknown: 0, silenced: 0, ok: 0, total: 400 }, offset: 0, order, rows }
      socket.dispatchEvent(new MessageEvent('message', { data: `${id}:event: window\ndata: ${JSON.stringify(window)}\n\n` }))
      if (i % 20 === 0) await new Promise((resolve) => requestAnimationFrame(resolve))
    }
  }, messages)
  const [heap, resident] = await memory()
  figure(`heap of the tab after ${messages} messages`, heap, 'MiB')
  figure(`resident memory of the tab after ${messages} messages`, resident, 'MiB', budget.memory)

  const per = ((await ingested()) - before) / ((Date.now() - at) / 1000)
  figure('results a second meanwhile', Math.round(per), '')
  const failed = results.filter(({ value, most }) => most !== undefined && value > most)
  if (failed.length > 0) throw new Error(`over budget: ${failed.map(({ name }) => name).join('; ')}`)
}

try {
  await main()
} catch (err) {
  console.error(err)
  console.error(readFileSync(join(directory, 'log'), 'utf8').split('\n').slice(-20).join('\n'))
  process.exitCode = 1
} finally {
  await browser?.close()
  for (const child of children.reverse()) {
    if (child.exitCode === null) {
      const gone = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGINT')
      await Promise.race([gone, new Promise((resolve) => setTimeout(resolve, 15_000))])
      child.kill('SIGKILL')
    }
  }
  rmSync(directory, { recursive: true, force: true })
}

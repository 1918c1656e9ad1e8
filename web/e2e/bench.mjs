// How the page takes a large fleet and a storm: `npm run bench`, with BENCH_EVENTS and BENCH_RATE (results a second).
// The mock backend shares the machine's cores with the browser, so the figures are an upper bound.

import { execFileSync } from 'node:child_process'
import { launch, newPage, signIn } from './browser.mjs'
import { startMock } from './mock.mjs'

const events = Number(process.env.BENCH_EVENTS ?? 100_000)
const rate = Number(process.env.BENCH_RATE ?? 3000)

const mock = await startMock({ events, rate })
const browser = await launch()
const page = await newPage(browser)
page.setDefaultTimeout(180_000)
const credentials = { url: mock.url, user: 'admin', password: 'P@ssw0rd!' }

const began = Date.now()
const live = signIn(page, credentials)
await page.locator('[data-key]').first().waitFor()
const firstRow = Date.now() - began
await live
const loaded = Date.now() - began

/** Frame times in milliseconds while `during` runs. */
async function frames(during) {
  await page.evaluate(() => {
    window.frameTimes = []
    let last = performance.now()
    const tick = (now) => {
      window.frameTimes.push(now - last)
      last = now
      window.ticking = requestAnimationFrame(tick)
    }
    window.ticking = requestAnimationFrame(tick)
  })
  await during()
  const times = await page.evaluate(() => {
    cancelAnimationFrame(window.ticking)
    return window.frameTimes.slice(1)
  })
  times.sort((a, b) => a - b)
  const at = (q) => Math.round(times[Math.min(times.length - 1, Math.floor(times.length * q))])
  return `${times.length} frames, p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, p99 ${at(0.99)} ms, longest ${at(1)} ms`
}

async function until(what, condition) {
  return page.evaluate(
    ([source]) =>
      new Promise((resolve) => {
        const test = new Function(`return ${source}`)
        const start = performance.now()
        const check = () => (test() ? resolve(Math.round(performance.now() - start)) : requestAnimationFrame(check))
        check()
      }),
    [condition],
  ).then((ms) => `${what} ${ms} ms`)
}

const idle = await frames(() => page.waitForTimeout(5000))
const grid = page.getByRole('grid')
const scrolling = await frames(async () => {
  for (let i = 0; i < 60; i++) {
    await grid.evaluate((g, i) => (g.scrollTop = (g.scrollHeight / 60) * i), i)
    await page.waitForTimeout(30)
  }
})
await grid.evaluate((g) => (g.scrollTop = 0))

const search = page.getByLabel('Search', { exact: true })
const searches = []
for (const words of ['web-0', 'refused', 'zzz', '']) {
  const before = await page.getByTestId('shown').innerText()
  await search.fill(words)
  searches.push(await until(words || 'all', `document.querySelector('[data-testid=shown]').innerText !== ${JSON.stringify(before)}`))
}
const badge = await page.getByTestId('badge').innerText()

const heap = async () => {
  const session = await page.context().newCDPSession(page)
  await session.send('HeapProfiler.enable')
  await session.send('HeapProfiler.collectGarbage')
  return (await session.send('Runtime.getHeapUsage')).usedSize
}
const used = await heap()
const rss = execFileSync('ps', ['-eo', 'rss,args'], { encoding: 'utf8' })
  .split('\n')
  .filter((line) => line.includes('--type=renderer'))
  .map((line) => Number(line.trim().split(' ')[0]))

console.log(`${events} events, ${rate} results a second`)
console.log(`first row after ${firstRow} ms, all loaded after ${loaded} ms`)
console.log(`live:      ${idle}`)
console.log(`scrolling: ${scrolling}`)
console.log(`search (with 120 ms of waiting for the typing to pause): ${searches.join(', ')}`)
console.log(`badge: ${badge}; page heap ${Math.round(used / 2 ** 20)} MiB, largest renderer ${Math.round(Math.max(...rss) / 1024)} MiB resident`)
console.log('problems:', page.problems)
await browser.close()
await mock.close()

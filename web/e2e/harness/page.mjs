import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export const desktop = { viewport: { width: 1280, height: 800 } }
export const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true }

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  })
}

/**
 * A page of the backend in a browser with nothing stored. It collects what must not happen in problems. A test that sends
 * the browser to other hosts on purpose names their origins as elsewhere.
 */
export class Page {
  problems = []

  static async open(browser, backend, { elsewhere = [], ...options } = desktop) {
    const page = new Page()
    page.elsewhere = elsewhere
    page.backend = backend
    page.context = await browser.newContext({ baseURL: backend.url, ...options })
    page.context.setDefaultTimeout(15_000)
    page.tab = await page.context.newPage()
    page.watch()
    return page
  }

  watch() {
    const { tab, backend, problems, elsewhere } = this
    tab.on('pageerror', (err) => problems.push(`uncaught: ${err}`))
    tab.on('console', (message) => {
      // The browser itself logs refused requests and cut connections; tests cause them on purpose.
      const network = /Failed to load resource|WebSocket connection to|net::ERR/.test(message.text())
      if (message.type() === 'error' && !network) problems.push(`console: ${message.text()}`)
    })
    tab.on('request', (request) => {
      const { protocol, origin } = new URL(request.url())
      if (/^https?:$/.test(protocol) && origin !== backend.url && !elsewhere.includes(origin)) problems.push(`request to ${request.url()}`)
    })
    tab.on('websocket', (socket) => {
      if (new URL(socket.url()).host !== new URL(backend.url).host) problems.push(`connection to ${socket.url()}`)
    })
  }

  go(path) {
    return this.tab.goto(path)
  }

  /** Fills in the sign-in that is shown. */
  async fillIn(user = this.backend.user, password = this.backend.password) {
    await this.tab.getByLabel('Username').fill(user)
    await this.tab.getByLabel('Password', { exact: true }).fill(password)
    await this.tab.getByRole('button', { name: 'Sign in' }).click()
  }

  /** Goes to an address as a user. */
  async signIn(path = '/', user, password) {
    await this.go(path)
    await this.fillIn(user, password)
    await this.tab.getByText('Sign in to lapwing').waitFor({ state: 'hidden' })
  }

  /** Waits until the screen has its first rows and is live. */
  live() {
    return this.badge('Live').waitFor()
  }

  /** Waits until nothing on the screen is still loading. */
  settled() {
    return this.tab.waitForFunction(() => {
      const badge = document.querySelector('[data-testid=badge]')
      const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'
      if (document.documentElement.dataset.mantineColorScheme !== scheme) return false
      return (!badge || badge.dataset.kind === 'live') && !document.querySelector('[aria-busy=true], .mantine-Skeleton-root')
    })
  }

  badge(words) {
    return this.tab.getByTestId('badge').filter({ hasText: words })
  }

  /** Waits for words anywhere on the page. */
  see(words) {
    return this.tab.getByText(words).first().waitFor()
  }

  get search() {
    return this.tab.getByRole('combobox', { name: 'Search' })
  }

  press(key) {
    return this.tab.keyboard.press(key)
  }

  /** The row of an event; with a status, only while it has that. */
  row(entity, check, mark) {
    return this.tab.locator(`[role=row][data-entity="${entity}"][data-check="${check}"]${mark ? `[data-mark="${mark}"]` : ''}`)
  }

  /** entity/check of the rows, from top to bottom. */
  async rows() {
    const rows = await this.tab
      .locator('[role=row][data-entity]')
      .evaluateAll((all) =>
        all.map((row) => ({ name: `${row.dataset.entity}/${row.dataset.check}`, top: row.getBoundingClientRect().top })),
      )
    return rows.sort((a, b) => a.top - b.top).map(({ name }) => name)
  }

  /** The detail of an event. */
  detail(check = '') {
    return this.tab.getByRole('complementary', { name: `Event: ${check}` })
  }

  /** What a search parameter of the address has. */
  parameter(name) {
    return new URL(this.tab.url()).searchParams.get(name)
  }

  /** Waits until the address fits. */
  address(fits) {
    return this.tab.waitForURL((url) => fits(url))
  }

  /** Chooses an option of a list that is no native one. */
  async choose(label, option) {
    await this.tab.getByRole('combobox', { name: label }).click()
    await this.tab.getByRole('option', { name: option, exact: true }).click()
  }

  /** What axe finds, for the rules of WCAG 2.2 AA. */
  async violations() {
    const { violations } = await this.tab.evaluate(
      `${axe}; axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] })`,
    )
    return violations.map(
      (v) => `${v.id}: ${v.nodes.map((n) => `${n.target.join(' ')} (${n.failureSummary?.split('\n')[1]?.trim()})`).join('; ')}`,
    )
  }

  async close() {
    await this.context.close()
  }
}

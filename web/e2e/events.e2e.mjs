// The page against a backend: LAPWING_URL with LAPWING_USER and LAPWING_PASSWORD names one; without it, the mock
// backend serves web/dist. Screenshots go to e2e/shots.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, afterEach, before, beforeEach, test } from 'node:test'
import { API } from './api.mjs'
import { launch, newPage, shots, signIn } from './browser.mjs'
import { startMock } from './mock.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const run = Math.random().toString(36).slice(2, 8)
const phone = { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true }

let tests = 0
let host, mock, browser, page, credentials, api

before(async () => {
  const url = process.env.LAPWING_URL
  if (!url) mock = await startMock({ events: 1200, rate: 20 })
  credentials = {
    url: url ?? mock.url,
    user: process.env.LAPWING_USER ?? 'admin',
    password: process.env.LAPWING_PASSWORD ?? 'P@ssw0rd!',
  }
  api = await API.signIn(credentials)
  browser = await launch()
})

// Every test has three healthy hosts of its own.
beforeEach(async () => {
  host = `e2e-${run}-${++tests}`
  for (let i = 1; i <= 3; i++) await api.post(`${host}-${i}`, 'ping', 0, 'PING OK - 0.4 ms')
})

after(async () => {
  await browser?.close()
  await api?.cleanUp()
  await mock?.close()
})

afterEach(async () => {
  const problems = page?.problems ?? []
  await page?.context().close()
  page = undefined
  assert.deepEqual(problems, [])
})

async function open(options, query = '') {
  page = await newPage(browser, options)
  await signIn(page, { ...credentials, url: credentials.url + query })
  return page
}

const row = (entity, check = 'ping') => page.locator(`[data-entity="${entity}"][data-check="${check}"]`)
const search = (words) => page.getByLabel('Search', { exact: true }).fill(words)
const detail = () => page.locator('aside')
/** The search has been applied: the test's own hosts are all there is. */
const onlyThree = () => page.waitForFunction(() => document.querySelectorAll('[data-key]').length === 3)
const soon = { timeout: 2000 }

async function accessible(name) {
  const { violations } = await page.evaluate(
    `${axe}; axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] })`,
  )
  const found = violations.map((v) => `${name}: ${v.id}: ${v.nodes.map((n) => n.target.join(' ')).join(', ')}`)
  assert.deepEqual(found, [])
}

test('a wrong password is told, the right one shows the events', async () => {
  page = await newPage(browser)
  await page.goto(credentials.url)
  await page.getByLabel('Username').fill(credentials.user)
  await page.getByLabel('Password').fill('not the password')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('alert').getByText('Wrong username or password.').waitFor()
  await accessible('sign-in')
  await page.getByLabel('Password').fill(credentials.password)
  await page.keyboard.press('Enter')
  await page.getByTestId('badge').getByText('Live').waitFor()
  await search(host)
  await row(`${host}-1`).waitFor()
  await onlyThree()
})

test('an event posted to the API appears and changes without a reload', async () => {
  await open()
  await page.evaluate(() => (window.notReloaded = true))
  await search(host)
  await row(`${host}-1`).waitFor()

  await api.post(`${host}-9`, 'ping', 2, 'PING CRITICAL - Packet loss = 100%\nsecond line')
  await row(`${host}-9`).waitFor(soon)
  assert.match(await row(`${host}-9`).innerText(), /Critical[\s\S]*PING CRITICAL - Packet loss = 100%/)

  await api.post(`${host}-9`, 'ping', 1, 'PING WARNING - rta 300 ms')
  await row(`${host}-9`).getByText('PING WARNING').waitFor(soon)

  await api.remove(`${host}-9`, 'ping')
  await row(`${host}-9`).waitFor({ ...soon, state: 'detached' })
  assert.equal(await page.evaluate(() => window.notReloaded), true)
})

test('rows keep their places while the pointer is among them', async () => {
  await open()
  await search(host)
  await onlyThree()
  await row(`${host}-3`).hover()
  await row(`${host}-2`).hover()
  const order = () => page.locator('[data-key]').evaluateAll((rows) => rows.map((r) => r.dataset.entity))
  const before = await order()
  await api.post(`${host}-3`, 'ping', 2, 'PING CRITICAL')
  await row(`${host}-3`).getByText('PING CRITICAL').waitFor(soon)
  assert.deepEqual(await order(), before)
  await page.getByRole('button', { name: '1 row to update' }).click()
  await page.getByRole('button', { name: 'to update' }).waitFor({ state: 'detached' })
  assert.deepEqual(await order(), [`${host}-3`, `${host}-1`, `${host}-2`])
})

test('the detail opens, follows changes, copies and closes', async () => {
  await open({ permissions: ['clipboard-read', 'clipboard-write'] })
  await search(`${host} ping`)
  await onlyThree() // a click on a row that moves opens nothing
  await row(`${host}-2`).click()
  await detail().getByRole('heading', { name: 'ping' }).waitFor()
  await detail().getByText('PING OK - 0.4 ms').first().waitFor()
  assert.match(page.url(), new RegExp(`event=default/${host}-2/ping`))

  await api.post(`${host}-2`, 'ping', 2, 'PING CRITICAL\nwith a second line')
  await detail().getByText('with a second line').first().waitFor(soon)
  await detail().getByText(/^Critical for/).waitFor()
  await accessible('detail')

  await detail().getByRole('button', { name: 'Copy JSON' }).click()
  await detail().getByText('Copied').waitFor()
  const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()))
  assert.equal(copied.check.status, 2)
  assert.equal(copied.entity.metadata.name, `${host}-2`)

  await page.keyboard.press('Escape')
  await detail().waitFor({ state: 'detached' })
  assert.doesNotMatch(page.url(), /event=/)
})

test('the keyboard reaches everything', async () => {
  await open()
  await page.keyboard.press('/')
  await page.keyboard.type(host)
  await row(`${host}-1`).waitFor()
  await onlyThree()
  await page.keyboard.press('Enter') // from the search to the list
  await page.keyboard.press('j')
  await page.keyboard.press('j')
  assert.equal(await row(`${host}-2`).getAttribute('data-cursor'), 'true')
  await page.keyboard.press('Enter')
  await detail().getByText(`${host}-2 · default`).waitFor()
  await page.keyboard.press('j')
  await detail().getByText(`${host}-3 · default`).waitFor()
  await page.keyboard.press('k')
  await page.keyboard.press('k')
  await detail().getByText(`${host}-1 · default`).waitFor()

  // A live change takes neither the focus nor the cursor away.
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label'))
  const before = await focused()
  await api.post(`${host}-1`, 'ping', 0, 'PING OK - again')
  await row(`${host}-1`).getByText('again').waitFor(soon)
  assert.equal(await focused(), before)

  await page.keyboard.press('Escape')
  await detail().waitFor({ state: 'detached' })
  assert.equal(await focused(), 'Events')
  assert.equal(await page.getByRole('grid').getAttribute('aria-activedescendant'), `event-default/${host}-1/ping`)
  await page.keyboard.press('Escape') // clears the search
  await page.waitForFunction(() => !location.search.includes('q='))
  await page.keyboard.press('?')
  await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor()
  await page.keyboard.press('Escape')
})

test('the address holds the view', async () => {
  await open()
  await search(host)
  await page.getByRole('switch', { name: 'Incidents first' }).uncheck({ force: true })
  await page.getByLabel('Namespace').selectOption('default')
  await page.getByRole('button', { name: /OK/ }).click()
  await onlyThree()
  await row(`${host}-1`).click()
  await page.waitForFunction(() => location.search.includes('event='))
  const { search: query } = new URL(page.url())
  assert.equal(query, `?ns=default&q=${host}&status=ok&order=name&event=default/${host}-1/ping`)
  await page.reload()
  await detail().getByText(`${host}-1 · default`).waitFor()
  await row(`${host}-3`).waitFor()
  assert.equal(await page.getByLabel('Search', { exact: true }).inputValue(), host)
  assert.equal(await page.getByRole('button', { name: /OK/ }).getAttribute('aria-pressed'), 'true')
})

for (const colorScheme of ['light', 'dark']) {
  test(`on a desktop, ${colorScheme}`, async () => {
    await open({ colorScheme })
    await page.waitForTimeout(400) // the flash of the first rows
    await page.screenshot({ path: `${shots}desktop-${colorScheme}.png` })
    await accessible('list')
    const first = page.locator('[data-key]').first()
    await first.hover() // rows keep their places from now on
    await first.click()
    await detail().getByText('JSON', { exact: true }).waitFor()
    await page.screenshot({ path: `${shots}desktop-detail-${colorScheme}.png` })
  })

  test(`on a phone, ${colorScheme}`, async () => {
    await open({ colorScheme, ...phone })
    await search(host)
    await row(`${host}-1`).waitFor()
    await search('')
    await page.waitForTimeout(400)
    await page.screenshot({ path: `${shots}phone-${colorScheme}.png` })
    const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
    assert.equal(await overflow(), 0)
    await accessible('list')
    await page.locator('[data-key]').first().tap()
    await page.getByRole('dialog').getByText('JSON', { exact: true }).waitFor()
    await page.screenshot({ path: `${shots}phone-detail-${colorScheme}.png` })
    assert.equal(await overflow(), 0)
    await accessible('detail')
    await page.goBack()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Sign out' }).tap()
    await page.getByLabel('Username').waitFor()
    await page.screenshot({ path: `${shots}phone-signin-${colorScheme}.png` })
    assert.equal(await overflow(), 0)
  })
}

const withMock = { skip: process.env.LAPWING_URL ? 'needs the mock backend' : false }

test('a cut connection is taken up again and misses nothing', withMock, async () => {
  await open()
  await search(host)
  await row(`${host}-1`).waitFor()
  mock.refuse(true)
  mock.drop()
  await page.getByTestId('badge').getByText(/Reconnecting/).waitFor()
  await row(`${host}-1`).waitFor() // the old data stays
  await api.post(`${host}-8`, 'ping', 2, 'PING CRITICAL - while away')
  await api.remove(`${host}-1`, 'ping')
  mock.refuse(false)
  await page.getByTestId('badge').getByText('Live').waitFor()
  await row(`${host}-8`).waitFor()
  await row(`${host}-1`).waitFor({ state: 'detached' })

  mock.overflow()
  await page.getByTestId('badge').getByText(/Reconnecting/).waitFor()
  await page.getByTestId('badge').getByText('Live').waitFor()
})

test('a session that the backend ended leads to the sign-in and back', withMock, async () => {
  await open()
  await search(host)
  await row(`${host}-1`).waitFor()
  mock.forget()
  mock.drop()
  await page.getByText('Your session has ended.').waitFor()
  await page.getByLabel('Username').fill(credentials.user)
  await page.getByLabel('Password').fill(credentials.password)
  await page.keyboard.press('Enter')
  await row(`${host}-1`).waitFor()
  assert.equal(await page.getByLabel('Search', { exact: true }).inputValue(), host)
  await api.signIn()
})

test('tokens are renewed while the page is open', { skip: withMock.skip, timeout: 30_000 }, async () => {
  const short = await startMock({ events: 20, rate: 5, tokenSeconds: 3 })
  try {
    page = await newPage(browser)
    const renewals = []
    page.on('response', (r) => r.url().endsWith('/auth/token') && renewals.push(r.status()))
    await signIn(page, { ...credentials, url: short.url })
    await page.waitForTimeout(4500)
    short.drop() // the new connection needs a token that is valid now
    await page.getByTestId('badge').getByText('Live').waitFor()
    const first = page.locator('[data-key]').first()
    await first.hover() // rows keep their places from now on
    await first.click()
    await detail().getByText('JSON', { exact: true }).waitFor()
    assert.ok(renewals.length >= 3 && renewals.every((status) => status === 200), `renewals: ${renewals}`)
  } finally {
    await page.context().close()
    await short.close()
  }
})

test('an empty namespace shows how to begin', withMock, async () => {
  await open()
  await page.getByLabel('Namespace').selectOption('empty')
  await page.getByText('Nothing is watched here yet').waitFor()
  await page.getByText('--backend-url ws://127.0.0.1:8081').waitFor()
  await accessible('empty')
  await page.screenshot({ path: `${shots}desktop-empty-light.png` })
  await page.getByLabel('Namespace').selectOption('default')
  await page.locator('[data-key]').first().waitFor()
  await search('there is no such event')
  await page.getByRole('button', { name: 'Show all events' }).click()
  await page.locator('[data-key]').first().waitFor()
})

test('a user of one namespace starts there, and is told what they may not see', withMock, async () => {
  page = await newPage(browser)
  await signIn(page, { ...credentials, user: 'viewer' })
  assert.equal(await page.getByLabel('Namespace').inputValue(), 'staging')
  await page.locator('[data-key]').first().waitFor()
  await page.goto(`${credentials.url}/?ns=production`)
  await page.getByText('You may not list events in namespace production.').waitFor()
  await page.getByTestId('badge').getByText('No access').waitFor()
})

test('a scrolled list stays where it is while others change', withMock, async () => {
  await open({}, '/?order=name')
  await page.getByRole('grid').evaluate((grid) => (grid.scrollTop = 20_000))
  const middle = () =>
    page.evaluate(() => {
      const element = document.elementFromPoint(600, 500).closest('[data-key]')
      return { entity: element.dataset.entity, check: element.dataset.check, y: Math.round(element.getBoundingClientRect().y) }
    })
  await page.waitForTimeout(200)
  const before = await middle()
  for (let i = 0; i < 5; i++) await api.post(`aaa-${host}-${i}`, 'ping', 1, 'PING WARNING')
  await page.getByRole('button', { name: /5 rows to update/ }).click(soon)
  await page.waitForTimeout(300)
  assert.deepEqual(await middle(), before)
})

import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene } from './harness/index.mjs'

const test = scene(fleet)

test('Ctrl+K goes to screens and events', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  await page.press('Control+K')
  const box = page.tab.getByLabel('Screen, entity, check, handler…')
  await focused(box)
  await page.tab.keyboard.type('Events')
  await page.press('Enter')
  await page.address(({ pathname }) => pathname === '/events')
  await page.row('web-1', 'http').waitFor()

  await box.waitFor({ state: 'hidden' })
  await page.press('Control+K')
  await focused(box)
  await page.tab.keyboard.type('replic')
  await page.tab.locator('[data-selected]', { hasText: 'db-1 · replication' }).waitFor()
  await page.press('Enter')
  await page.detail('replication').waitFor()
  assert.equal(page.parameter('event'), 'default/db-1/replication')

  await box.waitFor({ state: 'hidden' })
  await page.press('Control+K')
  await focused(box)
  await page.tab.keyboard.type('no such thing')
  await page.see('Nothing found')
  await page.press('Escape')
  await box.waitFor({ state: 'hidden' })
  await page.detail('replication').waitFor()
})

test('Ctrl+K goes to definitions', async ({ open, backend }) => {
  const specs = {
    checks: { command: 'true', interval: 3600, subscriptions: ['none'] },
    handlers: { type: 'pipe', command: 'true' },
    pipelines: { workflows: [] },
    filters: { action: 'allow', expressions: ['true'] },
    mutators: { command: 'cat' },
    hooks: { command: 'true', timeout: 5 },
    assets: { url: 'http://127.0.0.1/plugins.tar.gz', sha512: '0'.repeat(128) },
  }
  for (const [kind, spec] of Object.entries(specs)) {
    const name = `nightly-${kind}`
    await backend.call('PUT', `/api/core/v2/namespaces/default/${kind}/${name}`, { metadata: { name, namespace: 'default' }, ...spec })
  }
  const page = await open()
  await page.signIn('/')
  const box = page.tab.getByLabel('Screen, entity, check, handler…')
  await page.press('Control+K')
  await focused(box)
  await page.tab.keyboard.type('nightly')
  for (const kind of Object.keys(specs))
    await page.tab.getByRole('button', { name: new RegExp(`^nightly-${kind} \\w+ · default$`) }).waitFor()
  await page.press('Escape')
  for (const { words, path, parameter, key } of [
    { words: 'nightly-hand', path: '/config', parameter: 'open', key: 'default/nightly-handlers' },
    { words: 'nightly-check', path: '/checks', parameter: 'check', key: 'default/nightly-checks' },
  ]) {
    await box.waitFor({ state: 'hidden' })
    await page.press('Control+K')
    await focused(box)
    await page.tab.keyboard.type(words)
    await page.tab.locator('[data-selected]', { hasText: words }).waitFor()
    await page.press('Enter')
    await page.address(({ pathname }) => pathname === path)
    assert.equal(page.parameter(parameter), key)
  }
})

test('keys work from a box that was ticked, and Ctrl+K from a text', async ({ open }) => {
  const page = await open()
  await page.signIn('/events')
  await page.row('web-2', 'load').getByRole('checkbox').check()
  await page.press('s')
  const form = page.tab.getByRole('dialog', { name: 'Silence: 1 event' })
  await form.waitFor()
  await page.press('Escape')
  await form.waitFor({ state: 'hidden' })
  await page.press('/')
  await page.tab.locator('header input:focus').waitFor()
  await page.press('Control+K')
  const box = page.tab.getByLabel('Screen, entity, check, handler…')
  await focused(box)
})

test('the button of the palette opens it', async ({ open }) => {
  const page = await open()
  await page.signIn('/events')
  await page.tab.getByRole('button', { name: 'Go to…' }).click()
  await page.tab.getByLabel('Screen, entity, check, handler…').waitFor()
})

/** Waits until what is typed goes into the box. */
async function focused(box) {
  await box.waitFor()
  await box.evaluate(
    (input) =>
      new Promise((resolve) => (document.activeElement === input ? resolve() : input.addEventListener('focus', resolve, { once: true }))),
  )
}

import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene } from './harness/index.mjs'

const test = scene(fleet)

test('Ctrl+K goes to screens and events', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  await page.press('Control+K')
  const box = page.tab.getByLabel('Screen, entity or check')
  await focused(box)
  await page.tab.keyboard.type('Events')
  await page.press('Enter')
  await page.address(({ pathname }) => pathname === '/events')
  await page.row('web-1', 'http').waitFor()

  await box.waitFor({ state: 'hidden' })
  await page.press('Control+K')
  await focused(box)
  await page.tab.keyboard.type('replic')
  await page.tab.getByRole('button', { name: /db-1 · replication/ }).waitFor()
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

test('the button of the palette opens it', async ({ open }) => {
  const page = await open()
  await page.signIn('/events')
  await page.tab.getByRole('button', { name: 'Go to…' }).click()
  await page.tab.getByLabel('Screen, entity or check').waitFor()
})

/** Waits until what is typed goes into the box. */
async function focused(box) {
  await box.waitFor()
  await box.evaluate(
    (input) =>
      new Promise((resolve) => (document.activeElement === input ? resolve() : input.addEventListener('focus', resolve, { once: true }))),
  )
}

import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { phone, scene } from './harness/index.mjs'

const test = scene(fleet)

/** Nothing is wider than the phone. */
async function fits(page) {
  assert.equal(await page.tab.evaluate(() => document.documentElement.scrollWidth), phone.viewport.width)
}

test('an incident is found, read and acknowledged by tapping', async ({ open, backend }) => {
  const page = await open(phone)
  await page.signIn('/')
  await page.see('open incidents')
  await fits(page)
  await page.tab.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Events' }).tap()
  const row = page.row('web-1', 'http', 'critical')
  await row.waitFor()
  await fits(page)
  for (const words of ['web-1', 'http', 'Connection refused']) {
    const box = await row.getByText(words).first().boundingBox()
    assert.ok(box && box.x >= 0 && box.x + box.width <= phone.viewport.width, `${words} is on the screen`)
  }
  await row.tap()
  const detail = page.detail('http')
  await detail.waitFor()
  await fits(page)
  const pane = await detail.boundingBox()
  assert.ok(pane.width > 350, 'the detail has the width of the phone')

  await detail.getByRole('button', { name: 'Acknowledge' }).tap()
  const form = page.tab.getByRole('dialog')
  await form.getByRole('button', { name: 'Acknowledge' }).tap()
  assert.ok(await form.getByLabel('Comment').evaluate((input) => input.matches(':focus:invalid')), 'it asks for a comment')
  await form.getByLabel('Comment').fill('on it')
  await form.getByRole('button', { name: 'Acknowledge' }).tap()
  await page.see('Acknowledged http on web-1.')
  await detail.getByRole('button', { name: 'Close', exact: true }).tap()
  await detail.waitFor({ state: 'hidden' })
  await fits(page)
  const selector = encodeURIComponent('event.check.name == "http" && event.entity.name == "web-1"')
  const { rows } = await backend.call('GET', `/api/lapwing/v1/namespaces/default/events/view?fieldSelector=${selector}`)
  assert.equal(rows[0].acknowledged_by, backend.user)
})

test('back closes the detail', async ({ open }) => {
  const page = await open(phone)
  await page.signIn('/events')
  await page.row('db-1', 'replication').tap()
  await page.detail('replication').waitFor()
  await page.tab.goBack()
  await page.detail().waitFor({ state: 'hidden' })
  await page.row('db-1', 'replication').waitFor()
})

test('events are selected and silenced by tapping', async ({ open }) => {
  const page = await open(phone)
  await page.signIn('/events')
  for (const [entity, check] of [
    ['web-2', 'load'],
    ['cache-1', 'disk'],
  ]) {
    const row = page.row(entity, check)
    await row.waitFor()
    const pick = row.getByRole('checkbox')
    const { x, y, width, height } = await pick.boundingBox()
    await page.tab.touchscreen.tap(x + width / 2 + 10, y + height / 2 - 12) // a thumb is not exact
    await page.tab.waitForFunction((box) => box.checked, await pick.elementHandle())
  }
  await fits(page)
  const bar = page.tab.getByRole('toolbar', { name: 'Selected events' })
  await bar.getByText('2 events', { exact: true }).waitFor()
  await bar.getByRole('button', { name: 'Silence' }).tap()
  const form = page.tab.getByRole('dialog')
  await form.getByText('Hits 2 events now, 2 of them failing.').waitFor()
  await fits(page)
  await form.getByLabel('Reason').fill('on the way there')
  await form.getByRole('button', { name: 'Silence' }).tap()
  await page.see('Silenced 2 events.')
  await bar.waitFor({ state: 'hidden' })
  await page.tab.getByRole('button', { name: 'Undo' }).tap()
  await page.see('Undone.')
})

import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene, until } from './harness/index.mjs'

const test = scene(fleet)

/** Waits until the list has these rows, from top to bottom. */
const listed = (page, want) =>
  until(`the rows ${want.join(', ')}`, async () => (await page.rows()).join() === want.join()).catch(async (err) => {
    throw new Error(`${err.message}; there are ${(await page.rows()).join(', ')}`)
  })

test('changes appear without a reload', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/events?q=web-2')
  await page.live()
  await page.row('web-2', 'disk', 'ok').waitFor()
  await backend.fail('web-2', 'disk', 2, 'DISK CRITICAL: 97% used')
  await page.row('web-2', 'disk', 'critical').getByText('DISK CRITICAL: 97% used').waitFor()
  await backend.pass('web-2', 'disk')
  await page.row('web-2', 'disk', 'ok').waitFor()
})

test('rows keep their places under the pointer, and a button shows what waits', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/events?q=web')
  await page.row('web-1', 'disk', 'ok').waitFor()
  await page.live()
  const before = await until('the rows of both hosts', async () => {
    const rows = await page.rows()
    return rows.length === 8 && rows
  })
  const last = before.at(-1)
  const [entity, check] = last.split('/')
  await page.row(entity, check).hover()
  await page.tab.mouse.move(400, 300)
  await backend.fail('web-2', 'disk', 2)
  await page.row('web-2', 'disk', 'critical').waitFor()
  const pill = page.tab.getByRole('button', { name: /rows? to update/ })
  await pill.waitFor()
  assert.deepEqual(await page.rows(), before, 'no row has moved')
  await pill.click()
  await pill.waitFor({ state: 'hidden' })
  await until('the order of now', async () => (await page.rows()).indexOf('web-2/disk') < before.indexOf('web-2/disk'))
  await backend.pass('web-2', 'disk')
})

test('words and selectors find events', async ({ open }) => {
  const page = await open()
  await page.signIn('/events')
  const search = page.search
  await search.fill('REPLICATION db')
  await listed(page, ['db-1/replication'])
  await page.see('1 event')
  assert.equal(page.parameter('q'), 'REPLICATION db')

  await search.fill('event.check.status == 1 && event.entity.name =~ "^web"')
  await search.press('Enter')
  await listed(page, ['web-2/load'])
  await page.tab.getByRole('button', { name: 'Remove event.check.status == 1 from the search' }).click()
  await until('the rows of both hosts', async () => (await page.rows()).length === 8)

  await search.fill('no-such-host')
  await page.see('Nothing matches')
  await page.tab.getByRole('button', { name: 'Clear the search' }).click()
  await page.row('db-1', 'load').waitFor()
  assert.equal(page.parameter('q'), null)

  await search.fill('event.check.status ==')
  await search.press('Enter')
  await page.see('This search cannot be read')
})

test('the list can be ordered, grouped and counted', async ({ open }) => {
  const page = await open()
  await page.signIn('/events?q=event.check.status+%21%3D+0')
  await until('the worst first', async () => {
    const rows = await page.rows() // of the two critical ones, the newer is first
    return rows.slice(0, 2).sort().join(' ') === 'db-1/replication web-1/http' && rows.slice(2).join(' ') === 'web-2/load cache-1/disk'
  })
  await page.see('4 events')
  await page.choose('Order', 'By entity')
  await listed(page, ['cache-1/disk', 'db-1/replication', 'web-1/http', 'web-2/load'])
  await page.choose('Order', 'By check')
  await listed(page, ['cache-1/disk', 'web-1/http', 'web-2/load', 'db-1/replication'])
  assert.equal(page.parameter('sort'), 'check')

  await page.choose('Group by', 'By entity')
  const web1 = page.tab.getByRole('row').filter({ has: page.tab.getByRole('button', { name: 'web-1' }) })
  await web1.waitFor()
  assert.deepEqual(await web1.getByRole('cell').allInnerTexts(), ['web-1', '1', '0', '0', '0', '0'])
  await page.tab.getByRole('button', { name: 'web-1' }).click()
  await listed(page, ['web-1/http'])
  assert.equal(page.parameter('group'), null)

  await page.go('/events')
  await page.row('web-1', 'http').waitFor()
  await page.choose('Group by', 'By label role')
  await page.tab.getByRole('button', { name: 'cache' }).waitFor()
})

test('the address has all of the view', async ({ open }) => {
  const page = await open()
  await page.signIn('/events?q=web&status=failing&sort=entity&event=default%2Fweb-2%2Fload&ns=default')
  await page.detail('load').waitFor()
  await listed(page, ['web-1/http', 'web-2/load'])
  assert.equal(await page.search.inputValue(), 'web')
  assert.equal(await page.tab.getByRole('combobox', { name: 'Order' }).inputValue(), 'By entity')
  assert.equal(await page.tab.getByRole('combobox', { name: 'Namespace' }).inputValue(), 'default')
  assert.ok(await page.tab.getByRole('radio', { name: 'Failing' }).isChecked())
  assert.equal(await page.row('web-2', 'load').getAttribute('aria-selected'), 'true')
})

test('back and forward go through what was looked at', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  await page.tab.getByRole('navigation').getByRole('link', { name: 'Events' }).click()
  await page.row('web-1', 'http').waitFor()
  await page.tab.getByRole('radiogroup', { name: 'Which events' }).getByText('Failing').click()
  await page.row('web-1', 'disk').waitFor({ state: 'hidden' })
  await page.row('web-1', 'http').click()
  await page.detail('http').waitFor()

  await page.tab.goBack()
  await page.detail().waitFor({ state: 'hidden' })
  assert.equal(page.parameter('status'), 'failing')
  await page.tab.goBack()
  await page.row('web-1', 'disk').waitFor()
  await page.tab.goBack()
  await page.see('Newest incidents')
  await page.tab.goForward()
  await page.tab.goForward()
  await page.tab.goForward()
  await page.detail('http').waitFor()
})

test('the keyboard goes through the list', async ({ open }) => {
  const page = await open()
  await page.signIn('/events?q=event.check.status+%21%3D+0&sort=entity')
  await listed(page, ['cache-1/disk', 'db-1/replication', 'web-1/http', 'web-2/load'])
  const cursor = (entity) => page.tab.locator(`[data-entity="${entity}"][data-cursor="true"]`).waitFor()
  await cursor('cache-1')
  await page.press('j')
  await page.press('j')
  await cursor('web-1')
  await page.press('k')
  await cursor('db-1')
  await page.press('Enter')
  await page.detail('replication').waitFor()
  await page.press('j')
  await page.detail('http').waitFor()
  await page.press('Escape')
  await page.detail().waitFor({ state: 'hidden' })

  await page.press('x')
  const selected = page.tab.getByRole('toolbar', { name: 'Selected events' })
  await selected.getByText('1 event', { exact: true }).waitFor()
  await page.press('k')
  await page.press('x')
  await selected.getByText('2 events', { exact: true }).waitFor()
  await page.press('x')
  await selected.getByText('1 event', { exact: true }).waitFor()
  await selected.getByRole('button', { name: 'Select none' }).click()
  await selected.waitFor({ state: 'hidden' })

  await page.press('/')
  await page.tab.keyboard.type('jkx')
  assert.equal(await page.search.inputValue(), 'jkx')
})

test('several events are acknowledged at once', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/events?q=event.check.status+%21%3D+0&sort=entity')
  await listed(page, ['cache-1/disk', 'db-1/replication', 'web-1/http', 'web-2/load'])
  for (const key of ['x', 'j', 'x']) await page.press(key)
  await page.tab.getByRole('toolbar', { name: 'Selected events' }).getByRole('button', { name: 'Acknowledge' }).click()
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByText('This would change 2 events.').waitFor()
  const button = dialog.getByRole('button', { name: 'Acknowledge 2 events' })
  assert.ok(await button.isDisabled(), 'it waits for a comment')
  await dialog.getByLabel('Comment').fill('we look at both')
  await button.click()
  await page.see('Acknowledged 2 events.')
  await page.row('db-1', 'replication').getByText(backend.user).waitFor()
  await page.tab.getByRole('button', { name: 'Undo' }).click()
  await page.row('db-1', 'replication').getByText(backend.user).waitFor({ state: 'hidden' })
})

import assert from 'node:assert/strict'
import { scene, until } from './harness/index.mjs'

const test = scene(async (backend) => {
  await backend.check('disk')
  for (const name of ['slow', 'raid']) await backend.check(name, { interval: 3600, publish: false }) // run when they are asked to
  await backend.agent('web-1')
  await backend.fail('web-1', 'disk', 2, 'DISK CRITICAL: 97% used')
})

const address = '/events?event=default%2Fweb-1%2Fdisk'

test('the detail has the output, the facts and the timeline, and follows the check', async ({ open, backend }) => {
  const page = await open()
  await page.signIn(address)
  const detail = page.detail('disk, web-1')
  await detail.getByText('DISK CRITICAL: 97% used').first().waitFor()
  await detail.getByText(/^Critical for /).waitFor()
  const timeline = detail.getByTestId('timeline')
  await timeline.getByRole('img', { name: '1 time not OK' }).waitFor()
  await timeline.getByText('nobody was told').waitFor()
  await detail.getByText('1 h', { exact: true }).click()
  await timeline.locator('[data-mark=critical]').first().hover()
  await page.tab
    .getByRole('tooltip')
    .getByText(/Critical · .*DISK CRITICAL/s)
    .waitFor()

  await backend.pass('web-1', 'disk')
  await detail.getByText(/^OK for /).waitFor()
  await detail.getByText('disk is fine').first().waitFor()
  await backend.fail('web-1', 'disk', 2, 'DISK CRITICAL: 98% used')
  await detail.getByText('DISK CRITICAL: 98% used').first().waitFor()
  await timeline.getByRole('img', { name: '2 times not OK' }).waitFor()
})

test('acknowledge tells who has it, and can be undone', async ({ open, backend }) => {
  const page = await open()
  await page.signIn(address)
  const detail = page.detail('disk')
  await detail.getByRole('button', { name: 'Acknowledge' }).click()
  await page.tab.getByLabel('Comment').fill('I look at it')
  await page.press('Enter')
  await page.see('Acknowledged disk on web-1.')
  // Beside an open detail the list has no room for the column.
  await page.row('web-1', 'disk').getByTitle(`Acknowledged by ${backend.user}`).waitFor({ state: 'attached' })
  await detail.getByRole('button', { name: 'Acknowledge' }).waitFor({ state: 'hidden' })
  await page.tab.getByRole('button', { name: 'Undo' }).click()
  await page.see('Undone.')
  await detail.getByRole('button', { name: 'Acknowledge' }).waitFor()
})

test('silence shows beforehand what it hits', async ({ open, backend }) => {
  const page = await open()
  await page.signIn(address)
  const detail = page.detail('disk')
  await detail.getByRole('button', { name: 'Silence' }).click()
  const dialog = page.tab.getByRole('dialog', { name: 'Silence' })
  await dialog.getByText('Hits 1 event now, 1 of them failing.').waitFor()
  await dialog.getByText('The entity', { exact: true }).click()
  await dialog.getByText('Hits 2 events now, 1 of them failing.').waitFor()
  await dialog.getByText('This event', { exact: true }).click()
  await dialog.getByText('Hits 1 event now, 1 of them failing.').waitFor()
  await dialog.getByLabel('Reason').fill('new disk comes')
  await dialog.getByRole('button', { name: 'Silence' }).click()
  await page.see('Silence entity:web-1:disk is made.')
  const [silence] = await backend.call('GET', '/api/core/v2/namespaces/default/silenced')
  assert.equal(silence.reason, 'new disk comes')
  assert.equal(silence.metadata.name, 'entity:web-1:disk')
  await detail.getByText('Silenced by entity:web-1:disk').waitFor()
  await page.tab.getByRole('button', { name: 'Undo' }).click()
  await page.see('Undone.')
  assert.deepEqual(await backend.call('GET', '/api/core/v2/namespaces/default/silenced'), [])
})

test('run again asks the agent', async ({ open, backend }) => {
  await backend.call('POST', '/api/core/v2/namespaces/default/checks/slow/execute', { check: 'slow', subscriptions: ['entity:web-1'] })
  const before = await until('the first result', () => backend.event('web-1', 'slow'))
  const page = await open()
  await page.signIn('/events?event=default%2Fweb-1%2Fslow')
  // Of two runs in the same second, the event would not tell them apart.
  await until('the next second', () => Date.now() / 1000 >= before.check.executed + 1)
  await page.detail('slow').getByRole('button', { name: 'Run again' }).click()
  await page.see('Asked web-1 to run slow.')
  await until('a newer result', async () => (await backend.event('web-1', 'slow')).check.executed > before.check.executed)
})

test('resolve sets the status by hand', async ({ open, backend }) => {
  backend.break('web-1', 'raid', 2, 'RAID CRITICAL')
  await backend.call('POST', '/api/core/v2/namespaces/default/checks/raid/execute', { check: 'raid', subscriptions: ['entity:web-1'] })
  await backend.status('web-1', 'raid', 2)
  const page = await open()
  await page.signIn('/events?event=default%2Fweb-1%2Fraid')
  await page.detail('raid').getByRole('button', { name: 'Resolve' }).click()
  await page.tab.getByRole('dialog').getByRole('button', { name: 'Resolve' }).click()
  await page.see('Resolved raid on web-1.')
  await backend.status('web-1', 'raid', 0)
  await page.row('web-1', 'raid', 'ok').waitFor()
})

test('the event is copied as JSON', async ({ open }) => {
  const page = await open()
  await page.context.grantPermissions(['clipboard-read', 'clipboard-write'])
  await page.signIn(address)
  await page.detail('disk').getByRole('button', { name: 'Copy JSON' }).click()
  await page.detail('disk').getByText('Copied').waitFor()
  const copied = JSON.parse(await page.tab.evaluate(() => navigator.clipboard.readText()))
  assert.equal(copied.entity.metadata.name, 'web-1')
  assert.equal(copied.check.metadata.name, 'disk')
})

test('an event that is not there is told', async ({ open }) => {
  const page = await open()
  await page.signIn('/events?event=default%2Fweb-1%2Fnothing')
  await page.detail('nothing').getByText('This event does not exist (any more).').waitFor()
})

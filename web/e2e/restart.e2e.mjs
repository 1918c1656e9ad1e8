import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene } from './harness/index.mjs'

const test = scene(fleet)

test('the page survives a restart of the backend', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/events?sort=entity')
  await page.row('web-1', 'http').waitFor()
  await page.live()
  const rows = await page.rows()

  await backend.end()
  await page.badge('Cannot connect').waitFor()
  assert.deepEqual(await page.rows(), rows, 'the rows stay')
  backend.break('db-1', 'disk', 2, 'DISK CRITICAL: while the backend was away')

  await backend.begin()
  await page.live()
  await page.row('db-1', 'disk', 'critical').getByText('while the backend was away').waitFor()
  assert.deepEqual(await page.rows(), rows)
})

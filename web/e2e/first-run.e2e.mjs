// From nothing to the first event of a check, with what the page shows.

import assert from 'node:assert/strict'
import { scene } from './harness/index.mjs'

const test = scene()

test('the page leads from an empty backend to the first result in two minutes', async ({ open, backend, t }) => {
  const begin = Date.now()
  const page = await open()
  await page.signIn('/')
  await page.see('Nothing is watched here yet')
  const shown = (await page.tab.getByText(/^lapwing agent/).innerText()).replaceAll('\\\n', ' ').split(/\s+/)
  await backend.run(shown.slice(1))
  await page.see('An agent is connected')
  await page.see('1 agent connected')
  await page.tab.getByRole('button', { name: 'Make this check' }).click()
  await page.see('The check disk runs every 10 seconds.')
  await page.see('All clear')
  await page.go('/events')
  await page
    .row('web1', 'disk')
    .getByText(/% full/)
    .waitFor({ timeout: 60_000 })
  const seconds = (Date.now() - begin) / 1000
  t.diagnostic(`${Math.round(seconds)} s`)
  assert.ok(seconds < 120, `${seconds} s`)
})

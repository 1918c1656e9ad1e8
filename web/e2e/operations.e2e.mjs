// What an operator does at night, from the first sight of an incident to its end.

import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fleet } from './harness/fleet.mjs'
import { scene, until } from './harness/index.mjs'

const many = 5000

const test = scene(async (backend) => {
  await fleet(backend)
  await Promise.all([letters(backend), measured(backend)])
})

const receiver = (backend) => join(backend.dir, 'receiver')

/** A handler whose receiver is away. */
async function letters(backend) {
  const core = '/api/core/v2/namespaces/default'
  const file = receiver(backend)
  await backend.call('POST', `${core}/handlers`, {
    metadata: { name: 'receiver', namespace: 'default' },
    type: 'pipe',
    filters: ['is_incident'],
    command: `test -e ${file} || { echo the receiver is away; exit 1; }; cat >>${file}`,
  })
  await backend.call('POST', `${core}/events`, {
    entity: { entity_class: 'proxy', metadata: { name: 'switch-1', namespace: 'default' } },
    check: { metadata: { name: 'ping', namespace: 'default' }, status: 2, output: 'no reply', interval: 60, handlers: ['receiver'] },
  })
  await until('the dead letter', async () => (await backend.call('GET', '/api/lapwing/v1/namespaces/default/deadletters')).length > 0)
}

/** A check with a metric. */
async function measured(backend) {
  await backend.call('POST', '/api/core/v2/namespaces/default/checks', {
    metadata: { name: 'requests', namespace: 'default' },
    command: 'echo shop.requests 42 $(date +%s)',
    interval: 1,
    subscriptions: ['db'],
    publish: true,
    output_metric_format: 'graphite_plaintext',
  })
  await backend.status('db-1', 'requests', 0)
}

test('an incident is found and silenced by keyboard alone', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/')
  await page.see('Newest incidents')
  const type = (text) => page.tab.keyboard.type(text)
  await page.press('Control+K')
  await page.tab.getByLabel('Screen, entity, check, handler…').and(page.tab.locator(':focus')).waitFor()
  await type('Events')
  await page.press('Enter')
  await page.tab.getByRole('grid', { name: 'Events', exact: true }).getByText('replay lag').waitFor()
  await page.press('/')
  await page.search.and(page.tab.locator(':focus')).waitFor()
  await type('http web-1')
  await page.press('Enter')
  await page.tab.getByText('1 event', { exact: true }).waitFor()
  await page.row('web-1', 'http').waitFor()
  await page.press('s')
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByText('Hits 1 event now, 1 of them failing.').waitFor()
  await dialog.getByLabel('Reason').and(page.tab.locator(':focus')).waitFor()
  await type('the load balancer is replaced')
  await page.press('Enter')
  await page.see('Silenced 1 event.')
  await until(
    'the silence',
    async () => (await backend.event('web-1', 'http')).is_silenced ?? (await backend.event('web-1', 'http')).check.is_silenced,
  )
  await page.tab.getByRole('button', { name: 'Undo' }).click()
  await until('the end of the silence', async () => !(await backend.event('web-1', 'http')).check.is_silenced)
})

test('thousands of events are silenced at once, and again not', async ({ open, backend }) => {
  let next = 0
  await Promise.all(
    Array.from({ length: 32 }, async () => {
      while (next < many) {
        const i = next++
        await backend.call('POST', '/api/core/v2/namespaces/default/events', {
          entity: { entity_class: 'proxy', metadata: { name: `port-${i}`, namespace: 'default', labels: { rack: 'r7' } } },
          check: { metadata: { name: 'link', namespace: 'default' }, status: 1, output: 'down', interval: 60 },
        })
      }
    }),
  )
  const page = await open()
  await page.signIn(`/events?q=${encodeURIComponent('label.rack == r7')}&status=open`)
  await page.see('5,000 events')
  await page.press('Control+A')
  const bar = page.tab.getByRole('toolbar', { name: 'Selected events' })
  await bar.getByRole('button', { name: 'Select all 5,000 matching' }).click()
  await bar.getByRole('button', { name: 'Silence' }).click()
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByText('Hits 5,000 events now, 5,000 of them failing.').waitFor()
  await dialog.getByLabel('Reason').fill('the switch of rack r7 is replaced')
  await dialog.getByRole('button', { name: 'Silence' }).click()
  await page.see('Silenced 5,000 events.')
  await page.see('Nothing matches')
  await page.tab.getByRole('button', { name: 'Undo' }).click()
  await page.see('5,000 events')
})

test('why nobody was told is two clicks away', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  const row = page.row('web-1', 'http')
  await row.getByText('nobody').waitFor()
  await row.click()
  const detail = page.detail('http')
  await detail.getByText('filter often denied it').first().waitFor()
  await detail.getByRole('link', { name: 'Why?' }).click()
  await page.see('Newest trace')
  await page.see('event.check.occurrences >= 1000')
})

test('the metrics of a check are beside its timeline', async ({ open }) => {
  const page = await open()
  await page.signIn('/events?event=default/db-1/requests&time=1h')
  const detail = page.detail('requests')
  await detail.getByTestId('timeline').waitFor()
  await detail.getByRole('img', { name: /requests/ }).waitFor()
})

test('a dead letter is sent again when its receiver is back', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/queues?tab=letters')
  await page.see('switch-1')
  writeFileSync(receiver(backend), '')
  await page.tab.getByRole('row').filter({ hasText: 'switch-1' }).click()
  const detail = page.tab.getByRole('complementary', { name: /Dead letter/ })
  await detail.getByText('the receiver is away').first().waitFor()
  await detail.getByRole('button', { name: 'Send again' }).click()
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByText('1 dead letter would be queued').waitFor()
  await dialog.getByRole('button', { name: 'Send 1 dead letter again' }).click()
  await page.see('1 dead letter is queued for its handler.')
  await until('what the receiver got', () => existsSync(receiver(backend)) && readFileSync(receiver(backend), 'utf8').includes('switch-1'))
  assert.deepEqual(await backend.call('GET', '/api/lapwing/v1/namespaces/default/deadletters'), [])
})

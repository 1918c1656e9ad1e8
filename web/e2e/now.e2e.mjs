import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene, until } from './harness/index.mjs'

const test = scene(fleet)

test('it counts the incidents that nobody has, live', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/')
  const head = page.tab.getByRole('region', { name: 'Now' })
  await head.filter({ hasText: /^4\s*open incidents/ }).waitFor()
  await head.getByText('4 agents connected').waitFor()
  await head.getByRole('link', { name: /^(?!0\.0 )[\d.,]+ events\/s$/ }).waitFor()
  const newest = page.tab.getByRole('region', { name: 'Newest incidents' })
  for (const output of ['Connection refused', 'LOAD WARNING', 'replay lag', 'no such file system']) await newest.getByText(output).waitFor()

  await backend.fail('db-1', 'disk', 2, 'DISK CRITICAL')
  await head.filter({ hasText: /^5\s*open incidents/ }).waitFor()
  await newest.getByText('DISK CRITICAL').waitFor()
  assert.equal((await page.rows())[0], 'db-1/disk', 'the newest is first')

  await backend.call('POST', '/api/lapwing/v1/namespaces/default/events/db-1/disk/ack', { comment: 'seen' })
  await head.filter({ hasText: /^4\s*open incidents/ }).waitFor()
  await newest.getByText('DISK CRITICAL').waitFor({ state: 'hidden' })
  await backend.pass('db-1', 'disk')
})

test('its parts lead to the list of what they count', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  const rowsOf = (n) => until(`${n} rows`, async () => page.tab.url().includes('/events') && (await page.rows()).length === n)
  const cases = [
    { link: page.tab.getByRole('link', { name: '2 Critical' }), rows: ['db-1/replication', 'web-1/http'] },
    { link: page.tab.getByRole('link', { name: '1 Warning' }), rows: ['web-2/load'] },
    { link: page.tab.getByRole('link', { name: '1 Unknown' }), rows: ['cache-1/disk'] },
    { link: page.tab.getByRole('region', { name: 'By check' }).getByRole('link', { name: 'http' }), rows: ['web-1/http'] },
    { link: page.tab.getByRole('region', { name: 'By entity' }).getByRole('link', { name: 'db-1' }), rows: ['db-1/replication'] },
  ]
  for (const { link, rows } of cases) {
    await link.click()
    await rowsOf(rows.length)
    assert.deepEqual((await page.rows()).sort(), rows)
    await page.tab.goBack()
    await page.see('Newest incidents')
  }
  await page.tab.getByRole('link', { name: '4 agents connected' }).click()
  const entities = page.tab.getByRole('grid', { name: 'Entities' })
  for (const name of ['cache-1', 'db-1', 'web-1', 'web-2']) await entities.getByTitle(name, { exact: true }).waitFor()
  await page.tab.goBack()
  await page.see('Newest incidents')
  await page.row('web-1', 'http').click()
  await page.detail('http').waitFor()
})

test('it names the incidents that nobody was told about', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  const untold = page.tab.getByRole('region', { name: 'Nobody was told of 2' })
  await untold.waitFor()
  await untold.getByRole('link', { name: 'web-2 · load' }).waitFor()
  await untold.getByRole('link', { name: 'web-1 · http' }).click()
  await page.detail('http').getByText('Nobody was told', { exact: true }).waitFor()
})

test('keys go through the newest incidents, and the cursor stays with its incident', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/')
  await page.row('web-1', 'http').waitFor()
  const [newest, second] = await page.rows()
  const under = () =>
    page.tab.locator('[data-cursor=true]').evaluateAll((rows) => rows.map(({ dataset }) => `${dataset.entity}/${dataset.check}`))
  assert.deepEqual(await under(), [])
  await page.press('j')
  await until('the cursor is on the newest', async () => (await under()).join() === newest)
  await page.press('j')
  await until('the cursor is on the second', async () => (await under()).join() === second)

  await backend.fail('db-1', 'disk', 2, 'DISK CRITICAL')
  await until('another one is above', async () => (await page.rows())[0] === 'db-1/disk')
  assert.deepEqual(await under(), [second])
  await page.press('k')
  await until('the cursor is on the newest of before', async () => (await under()).join() === newest)
  await page.press('k')
  await until('the cursor is on the new one', async () => (await under()).join() === 'db-1/disk')
  await backend.pass('db-1', 'disk')
  await page.row('db-1', 'disk').waitFor({ state: 'hidden' })
  await page.press('j')
  await until('the cursor is on what came to its place', async () => (await under()).join() === newest)
  await page.press('Enter')
  await page.detail(newest.split('/')[1]).waitFor()
  assert.equal(page.parameter('event'), `default/${newest}`)
})

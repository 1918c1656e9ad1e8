import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene, until } from './harness/index.mjs'

const test = scene(fleet)

const row = (page, name) => page.tab.getByRole('row').filter({ has: page.tab.getByText(name, { exact: true }) })
const detail = (page, name = '') => page.tab.getByRole('complementary', { name: `Entity: ${name}` })
const filters = (page) => page.tab.getByRole('group', { name: 'Filters' })

/** Waits until the list has these entities, from top to bottom. */
const listed = (page, want) =>
  until(`the entities ${want.join(', ')}`, async () => {
    const rows = page.tab.getByRole('grid', { name: 'Entities' }).getByRole('row')
    const all = await rows.evaluateAll((found) =>
      found.map((one) => ({ words: one.textContent ?? '', top: one.getBoundingClientRect().top })),
    )
    const names = all.sort((a, b) => a.top - b.top).flatMap(({ words }) => words.match(/(?:web|db|cache)-\d/) ?? [])
    return names.join() === want.join()
  })

test('the list is live, and can be searched, filtered and ordered', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/entities?ns=default')
  await page.live()
  await row(page, 'web-1').getByText('Critical').waitFor()
  await page.choose('Order', 'By name')
  await listed(page, ['cache-1', 'db-1', 'web-1', 'web-2'])
  await backend.fail('web-2', 'disk', 2)
  await row(page, 'web-2').getByText('Critical').waitFor()
  await backend.pass('web-2', 'disk')
  await row(page, 'web-2').getByText('Warning').waitFor()

  await filters(page).getByRole('button', { name: /^web/ }).first().click()
  await listed(page, ['web-1', 'web-2'])
  await filters(page)
    .getByRole('button', { name: /^Warning/ })
    .click()
  await listed(page, ['web-2'])
  assert.equal(page.parameter('worst'), 'warning')
  await filters(page).getByRole('button', { name: 'Remove all filters' }).click()
  await listed(page, ['cache-1', 'db-1', 'web-1', 'web-2'])

  await page.search.fill('label.role == db')
  await page.press('Enter')
  await listed(page, ['db-1'])
  await page.search.fill('WEB')
  await listed(page, ['web-1', 'web-2'])
})

test('entities are counted by label, and by version', async ({ open }) => {
  const page = await open()
  await page.signIn('/entities?ns=default')
  await page.choose('Group by', 'Label role')
  const web = page.tab.getByRole('row').filter({ has: page.tab.getByRole('button', { name: 'web', exact: true }) })
  assert.deepEqual((await web.getByRole('cell').allInnerTexts()).slice(0, 2), ['web', '2'])
  await page.choose('Group by', 'Version')
  await page.see(/^All agents run /)
  await page.choose('Group by', 'Label role')
  await page.tab.getByRole('button', { name: 'cache', exact: true }).click()
  await listed(page, ['cache-1'])
})

test('the map names the host under the pointer and the cursor, and opens it', async ({ open }) => {
  const page = await open()
  await page.signIn('/entities?view=map&ns=default')
  const map = page.tab.getByRole('listbox', { name: 'Map of entities' })
  await map.getByRole('option', { name: 'cache-1 · Unknown' }).waitFor()
  await map.focus()
  await page.press('ArrowRight')
  await map.getByRole('option', { name: 'db-1 · Critical' }).waitFor()
  await page.press('End')
  await map.getByRole('option', { name: 'web-2 · Warning' }).waitFor()
  await page.press('Enter')
  await detail(page, 'web-2').waitFor()
  await page.press('Escape')
  await detail(page).waitFor({ state: 'hidden' })
  await map.hover({ position: { x: 5, y: 8 } })
  await page.tab.getByText('cache-1', { exact: true }).waitFor()
  await map.click({ position: { x: 5, y: 8 } })
  await detail(page, 'cache-1').waitFor()
  assert.equal(page.parameter('entity'), 'default/cache-1')
})

test('the detail of an entity has its checks, and edits its subscriptions and labels', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/entities?entity=default%2Fweb-1&ns=default')
  const pane = detail(page, 'web-1')
  await pane.getByRole('link', { name: /http/ }).waitFor()
  await pane.getByText('Connected', { exact: true }).waitFor()

  await pane.getByRole('button', { name: 'Edit subscriptions' }).click()
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByRole('combobox', { name: 'Subscriptions' }).fill('canary')
  await page.press('Enter')
  await dialog.getByText('The server would take it.').waitFor()
  await dialog.getByRole('button', { name: 'Save' }).click()
  await page.see('The subscriptions of web-1 are saved.')
  await pane
    .getByText(/canary/)
    .first()
    .waitFor()
  const saved = await backend.call('GET', '/api/core/v2/namespaces/default/entities/web-1')
  assert.deepEqual([...saved.subscriptions].sort(), ['canary', 'entity:web-1', 'linux', 'web'])

  await pane.getByRole('button', { name: 'Edit labels' }).click()
  await dialog.getByRole('button', { name: 'Add a label' }).click()
  await dialog.getByRole('textbox', { name: 'Label 2' }).fill('tier')
  await dialog.getByRole('textbox', { name: 'Value 2' }).fill('front')
  await dialog.getByText('The server would take it.').waitFor()
  await dialog.getByRole('button', { name: 'Save' }).click()
  await pane.getByText('front', { exact: true }).waitFor()
  await pane.getByText(/tier/).first().waitFor()
})

test('several entities are labelled, silenced and deleted at once', async ({ open, backend }) => {
  for (const name of ['old-1', 'old-2']) {
    await backend.call('POST', '/api/core/v2/namespaces/default/entities', {
      metadata: { name, namespace: 'default' },
      entity_class: 'proxy',
    })
  }
  const page = await open()
  await page.signIn('/entities?q=old&sort=name&ns=default')
  await row(page, 'old-2').waitFor()
  for (const key of ['x', 'j', 'x']) await page.press(key)
  const selected = page.tab.getByRole('toolbar', { name: 'Selected entities' })
  await selected.getByText('2 entities', { exact: true }).waitFor()
  const dialog = page.tab.getByRole('dialog')

  await selected.getByRole('button', { name: 'Label' }).click()
  await dialog.getByRole('combobox', { name: 'Label' }).fill('state')
  await dialog.getByRole('textbox', { name: 'Value' }).fill('retired')
  await dialog.getByText('This would change 2 entities.').waitFor()
  await dialog.getByRole('button', { name: 'Change 2 entities' }).click()
  await page.see('Changed 2 entities.')
  const labelled = await backend.call('GET', '/api/core/v2/namespaces/default/entities/old-1')
  assert.equal(labelled.metadata.labels.state, 'retired')

  for (const key of ['x', 'k', 'x']) await page.press(key)
  await selected.getByText('2 entities', { exact: true }).waitFor()
  await selected.getByRole('button', { name: 'Silence' }).click()
  await dialog.getByText('Hits 0 events now.').waitFor()
  await dialog.getByLabel('Reason').fill('they are retired')
  await dialog.getByRole('button', { name: 'Silence' }).click()
  await page.see('Silenced 0 events.')

  for (const key of ['x', 'j', 'x']) await page.press(key)
  await selected.getByRole('button', { name: 'Delete' }).click()
  await dialog.getByText('This would delete 2 entities with 0 events.').waitFor()
  await dialog.getByText('old-1, old-2').waitFor()
  await dialog.getByRole('button', { name: 'Delete 2 entities' }).click()
  await page.see('Deleted 2 entities.')
  await page.see('Nothing matches')
})

test('the palette finds entities', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  await page.press('Control+K')
  await page.tab.getByLabel('Screen, entity, check, handler…').fill('cache')
  await page.tab.getByRole('button', { name: /^cache-1 default/ }).click()
  await detail(page, 'cache-1').waitFor()
})

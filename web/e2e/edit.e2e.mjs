import { fleet } from './harness/fleet.mjs'
import { scene, until } from './harness/index.mjs'

const test = scene(fleet)

const core = '/api/core/v2/namespaces/default'

test('a definition is edited as a form and as YAML', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/checks?check=default/disk&act=edit')
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByLabel('Interval in seconds').fill('77')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await until('the check', async () => (await backend.call('GET', `${core}/checks/disk`)).interval === 77)

  await page.go('/config?kind=handlers&open=default/team&act=edit')
  await dialog.getByText('timeout: 0').click()
  await page.press('End')
  await page.press('Backspace')
  await page.tab.keyboard.type('9')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await until('the handler', async () => (await backend.call('GET', `${core}/handlers/team`)).timeout === 9)
})

test('an edit does not overwrite what somebody else has saved meanwhile', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/checks?check=default/load&act=edit')
  const dialog = page.tab.getByRole('dialog')
  await dialog.getByLabel('Interval in seconds').fill('78')
  const check = await backend.call('GET', `${core}/checks/load`)
  await backend.call('PUT', `${core}/checks/load`, { ...check, timeout: 5 })
  await dialog.getByRole('button', { name: 'Save' }).click()
  await dialog.getByText('Somebody has changed load since you opened it.').waitFor()
})

test('the focus goes back to where it was before a dialog', async ({ open }) => {
  const page = await open()
  await page.signIn('/checks')
  const button = page.tab.getByRole('button', { name: 'New check' })
  const focused = button.and(page.tab.locator(':focus'))
  await button.focus()
  for (const close of [() => page.press('Escape'), () => page.tab.getByRole('button', { name: 'Cancel' }).click()]) {
    await page.press('Enter')
    await page.tab.getByRole('dialog').getByRole('textbox', { name: 'Name', exact: true }).and(page.tab.locator(':focus')).waitFor()
    await close()
    await focused.waitFor()
  }
  await page.go('/events')
  await page.row('web-1', 'http').waitFor()
  await page.press('x')
  await page.press('s')
  await page.tab.getByRole('dialog').waitFor()
  await page.press('Escape')
  await page.tab.getByRole('grid', { name: 'Events' }).and(page.tab.locator(':focus')).waitFor()
})

// The steps of docs/first-incident.md.

import { Demo } from './harness/demo.mjs'
import { scene } from './harness/index.mjs'

const test = scene(
  async () => {},
  () => Demo.start(),
)

test('a new operator silences a noisy rack, and learns why a check did not alert', async ({ open, backend }) => {
  const agent = (name) =>
    backend.run(
      ...['agent', '--name', name, '--labels', 'rack=r7', '--subscriptions', 'rack-r7', '--backend-url', backend.agents],
      ...['--cache-dir', `${backend.dir}/${name}`, '--disable-api', '--disable-sockets', '--statsd-disable'],
    )
  const page = await open()
  const { tab } = page
  const now = tab.getByRole('region', { name: 'Now' })

  // 1: sign in.
  await page.signIn('/')
  await page.see('Newest incidents')
  await now.getByText('1 agent connected').waitFor()

  // 2: the agents of a rack.
  for (const name of ['r7-1', 'r7-2', 'r7-3']) agent(name)
  await now.getByText('4 agents connected').waitFor()

  // 3: a check that fails on them.
  await tab.getByRole('link', { name: 'Checks', exact: true }).click()
  await tab.getByRole('button', { name: 'New check' }).click()
  const form = tab.getByRole('dialog')
  await form.getByRole('textbox', { name: 'Name', exact: true }).fill('uplink')
  await form.getByLabel('Command').fill('echo "no reply from the switch"; exit 2')
  await form.getByLabel('Interval in seconds').fill('5')
  await form.getByLabel('Subscriptions').fill('rack-r7')
  await page.press('Enter')
  await form.getByLabel('Handlers').fill('incidents')
  await page.press('Enter')
  await form.getByText('The server would take it.').waitFor()
  await form.getByRole('button', { name: 'Create' }).click()
  await page.see('uplink')

  // 4: the incidents.
  await tab.getByRole('link', { name: 'Now', exact: true }).click()
  for (const name of ['r7-1', 'r7-2', 'r7-3'])
    await page
      .row(name, 'uplink')
      .getByText(/^incidents/)
      .waitFor()

  // 5: the rack is silenced.
  await tab.getByRole('region', { name: 'By check' }).getByRole('link', { name: 'uplink' }).click()
  await page.search.fill('label.rack == r7')
  await page.press('Enter')
  await tab.getByText('3 events', { exact: true }).waitFor()
  await page.press('Control+A')
  const bar = tab.getByRole('toolbar', { name: 'Selected events' })
  await bar.getByRole('button', { name: 'Select all 3 matching' }).click()
  await bar.getByRole('button', { name: 'Silence' }).click()
  const dialog = tab.getByRole('dialog')
  await dialog.getByText('Hits 6 events now, 3 of them failing.').waitFor()
  await dialog.getByLabel('Reason').fill('the switch of rack r7 is replaced')
  await dialog.getByRole('button', { name: 'Silence' }).click()
  await page.see('Silenced 6 events.')

  // 6: why a check did not alert.
  agent('r7-4')
  await tab.getByRole('radio', { name: 'Silenced' }).locator('..').click()
  await page.row('r7-4', 'uplink').waitFor()
  await page.row('r7-4', 'uplink').click()
  const detail = page.detail('uplink')
  await detail.getByText('Nobody was told', { exact: true }).waitFor()
  await detail.getByRole('link', { name: 'Why?' }).click()
  await page.see('Newest trace')
  await page.see('it is silenced by page-')
  await page.see('It ends here while the silence applies.')
  await tab.getByRole('link', { name: 'Open the event' }).click()
  await page.detail('uplink').getByText('the switch of rack r7 is replaced').first().waitFor()
})

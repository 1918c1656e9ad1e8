import { scene } from './harness/index.mjs'

const test = scene()

test('an address without a screen is told by the page, which goes on from there', async ({ open }) => {
  const page = await open()
  await page.signIn('/nonsense')
  await page.see('There is no such screen')
  await page.tab.getByRole('navigation').getByRole('link', { name: 'Events' }).click()
  await page.tab.getByRole('heading', { name: 'Nothing is watched here yet' }).waitFor()
})

import assert from 'node:assert/strict'
import { scene } from './harness/index.mjs'

const test = scene()

test('an address without a screen is told by the page, which goes on from there', async ({ open }) => {
  const page = await open()
  await page.signIn('/nonsense')
  await page.see('There is no such screen')
  await page.tab.getByRole('navigation').getByRole('link', { name: 'Events' }).click()
  await page.tab.getByRole('heading', { name: 'Nothing is watched here yet' }).waitFor()
})

test('an address that somebody made up breaks no screen', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  for (const at of [
    '/events?q=true',
    '/events?q=a&q=b',
    '/events?q=%7B%22a%22%3A1%7D',
    '/events?event=null',
    '/events?event=[1]',
    '/entities?entity=[]&facet=1',
    '/trace?event=1',
    '/explore?target=%5B1%5D',
    '/queues?letter=%7B%7D',
  ]) {
    await page.go(at)
    await page.tab.getByRole('navigation', { name: 'Screens' }).waitFor()
    await page.settled()
    assert.equal(await page.tab.getByText('This screen failed').count(), 0, at)
  }
})

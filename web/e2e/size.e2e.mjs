import assert from 'node:assert/strict'
import { scene } from './harness/index.mjs'

const test = scene()

/** What a first visit may fetch, compressed. */
const most = 300 * 1024

test('the first screen is small', async ({ open, t }) => {
  const page = await open()
  const files = []
  page.tab.on('requestfinished', (request) => {
    const { pathname } = new URL(request.url())
    if (!pathname.startsWith('/api/')) files.push(request.sizes().then(({ responseBodySize }) => ({ pathname, bytes: responseBodySize })))
  })
  await page.signIn('/')
  await page.see('Nothing is watched here yet')
  await page.settled()
  const sizes = await Promise.all(files)
  const total = sizes.reduce((sum, { bytes }) => sum + bytes, 0)
  t.diagnostic(`${sizes.length} files, ${Math.round(total / 1024)} KB`)
  assert.ok(
    sizes.some(({ pathname, bytes }) => pathname.endsWith('.js') && bytes > 10_000),
    'the scripts are counted',
  )
  assert.ok(total <= most, `${total} bytes: ${sizes.map(({ pathname, bytes }) => `${pathname} ${bytes}`).join(', ')}`)
})

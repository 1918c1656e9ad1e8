// Each screen in light and dark, and on a phone: what axe finds, and that it fits. With LAPWING_SCREENS=1 the pictures of
// docs/screens are taken as well.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { fleet } from './harness/fleet.mjs'
import { desktop, phone, scene } from './harness/index.mjs'
import { screens, visit } from './harness/screens.mjs'

const pictures = process.env.LAPWING_SCREENS === '1' ? new URL('../../docs/screens/', import.meta.url).pathname : undefined

const test = scene(fleet)

for (const screen of screens) {
  for (const colorScheme of ['light', 'dark']) {
    for (const device of screen.phone ? ['desktop', 'phone'] : ['desktop']) {
      const size = device === 'phone' ? phone : desktop
      const name = `${screen.name}-${device === 'phone' ? 'phone-' : ''}${colorScheme}`
      test(`${name} is accessible and fits`, async ({ open }) => {
        const page = await open({ ...size, colorScheme, reducedMotion: 'reduce' })
        await visit(page, screen)
        assert.deepEqual(await page.violations(), [])
        assert.equal(await page.tab.evaluate(() => document.documentElement.scrollWidth), size.viewport.width)
        if (pictures && (device === 'desktop' || colorScheme === 'light'))
          await page.tab.screenshot({ path: join(pictures, `${name}.png`) })
      })
    }
  }
}

test('each screen of the navigation is in the list of harness/screens.mjs', async ({ open }) => {
  const page = await open()
  await page.signIn('/')
  const links = await page.tab
    .getByRole('navigation', { name: 'Screens' })
    .getByRole('link')
    .evaluateAll((all) => all.map((a) => new URL(a.href).pathname))
  const known = screens.map(({ path }) => path.split('?')[0])
  assert.ok(links.length > 0)
  assert.deepEqual(
    links.filter((link) => !known.includes(link)),
    [],
  )
})

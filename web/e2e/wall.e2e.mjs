import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene } from './harness/index.mjs'

const test = scene(fleet)

test('a link with an API key shows the wall, and no more than its user may see', async ({ open, backend }) => {
  await backend.makeUser('wall', 'a-password-for-the-wall', 'view')
  const { name } = await backend.grantKey('wall')
  const page = await open()
  await page.go(`/wall#${name}`)
  await page.tab.getByRole('button', { name: 'Show the wall' }).click()
  await page.see('web-2')
  await page.badge('Live').waitFor()
  assert.equal(new URL(page.tab.url()).hash, '', 'the key is not left in the address')
  await page.tab.reload()
  await page.see('web-2')
  await page.tab.getByRole('link', { name: 'Leave the wall' }).click()
  await page.see('Newest incidents')
  await page.row('web-1', 'http').click()
  await page.detail('http').getByRole('button', { name: 'Resolve', disabled: true }).waitFor()

  await backend.call('DELETE', `/api/core/v2/apikeys/${name}`)
  await page.go('/wall')
  await page.see('Sign in to lapwing')
})

test('a link with a wrong key says so, and leads to the sign-in', async ({ open }) => {
  const page = await open()
  await page.go('/wall#00000000-0000-4000-8000-000000000000')
  await page.tab.getByRole('button', { name: 'Show the wall' }).click()
  await page.tab.getByRole('alert').getByText('The key of this link is not known, or was deleted.').waitFor()
  await page.tab.getByRole('button', { name: 'Sign in instead' }).click()
  await page.see('Sign in to lapwing')
})

test('a link does not take the place of a sign-in', async ({ open, backend }) => {
  await backend.makeUser('planted', 'a-password-of-somebody', 'cluster-admins')
  const { name } = await backend.grantKey('planted')
  const page = await open()
  await page.signIn('/')
  await page.go(`/wall#${name}`)
  await page.see('web-2')
  const cookies = await page.context.cookies()
  assert.deepEqual(
    cookies.filter((cookie) => cookie.name.startsWith('lapwing-key')),
    [],
  )
})

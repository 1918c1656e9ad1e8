import assert from 'node:assert/strict'
import { desktop, scene } from './harness/index.mjs'
import { Provider } from './harness/provider.mjs'

const test = scene(async (backend) => {
  await backend.check('disk')
  await backend.agent('web-1')
  await backend.status('web-1', 'disk', 0)
})

test('a wrong password is told, and the right one is taken after it', async ({ open, backend }) => {
  const page = await open()
  await page.go('/')
  await page.fillIn(backend.user, 'not the password')
  await page.tab.getByRole('alert').getByText('Wrong username or password.').waitFor()
  await page.tab.getByLabel('Password', { exact: true }).fill(backend.password)
  await page.press('Enter')
  await page.see('Newest incidents')
})

test('a reload keeps the session, and scripts cannot read it', async ({ open }) => {
  const page = await open()
  await page.signIn('/events')
  await page.row('web-1', 'disk').waitFor()
  await page.tab.reload()
  await page.row('web-1', 'disk').waitFor()

  const cookies = await page.context.cookies()
  assert.ok(cookies.length > 0, 'there are cookies')
  for (const { name, httpOnly, sameSite } of cookies) assert.deepEqual({ httpOnly, sameSite }, { httpOnly: true, sameSite: 'Strict' }, name)
  const readable = await page.tab.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }]))
  for (const { name, value } of cookies) assert.ok(!readable.includes(value), `scripts can read ${name}`)
  assert.doesNotMatch(readable, /eyJ/, 'a token is where scripts can read it')
})

test('sign out ends the session, in the other tab too', async ({ open }) => {
  const page = await open()
  await page.signIn('/events')
  const other = await page.context.newPage()
  await other.goto('/')
  await other.getByRole('navigation', { name: 'Screens' }).waitFor()
  const before = await page.context.cookies()

  await page.tab.getByRole('button', { name: 'Settings and sign-out' }).click()
  await page.tab.getByRole('menuitem', { name: 'Sign out' }).click()
  await page.see('Sign in to lapwing')
  await other.getByText('Sign in to lapwing').waitFor()
  await page.tab.reload()
  await page.see('Sign in to lapwing')

  // A copy of the cookie that lasts does not sign in again; the other one ends by itself within minutes.
  const lasting = before.filter(({ name }) => name.startsWith('lapwing-refresh'))
  assert.equal(lasting.length, 1)
  await page.context.addCookies(lasting)
  await page.tab.reload()
  await page.see('Sign in to lapwing')
})

test('a deep link leads to the sign-in, and on to what it names', async ({ open }) => {
  const page = await open()
  await page.signIn('/events?status=all&q=disk&event=default%2Fweb-1%2Fdisk')
  await page.detail('disk').waitFor()
  assert.equal(page.parameter('q'), 'disk')
  assert.equal(page.parameter('event'), 'default/web-1/disk')
})

test('a session that has ended elsewhere leads to the sign-in, and back to where the user was', async ({ open, backend }) => {
  await backend.makeUser('visitor', 'visitor-secret', 'view')
  const page = await open()
  await page.signIn('/events?q=disk', 'visitor', 'visitor-secret')
  await page.row('web-1', 'disk').waitFor()
  await page.context.clearCookies()
  await page.row('web-1', 'disk').click()
  await page.see('You have been signed out.')
  await page.fillIn('visitor', 'visitor-secret')
  await page.detail('disk').waitFor()
  assert.equal(page.parameter('q'), 'disk')
})

test('the next user of a tab gets nothing of the one before', async ({ open, backend }) => {
  await backend.makeUser('few', 'few-secret', 'system:user')
  const page = await open()
  await page.signIn('/audit')
  await page.see('admin')
  await page.tab.getByRole('link', { name: 'Events', exact: true }).click()
  await page.row('web-1', 'disk').waitFor()
  await page.tab.getByRole('button', { name: 'Settings and sign-out' }).click()
  await page.tab.getByRole('menuitem', { name: 'Sign out' }).click()
  await page.fillIn('few', 'few-secret')
  await page.see('You need the verb “list” on “events” for this.')
  assert.deepEqual(await page.rows(), [])
  await page.tab.getByRole('link', { name: 'Audit', exact: true }).click()
  await page.see('You need the verb “list” on “audit” for this.')
  assert.equal(await page.tab.getByRole('grid').count(), 0)
})

test('a page that is loaded while the backend is away waits for it', async ({ open, backend }) => {
  const page = await open()
  await page.context.route('**/api/lapwing/v1/session', (route) => route.abort())
  await page.go('/')
  await page.see('The backend cannot be reached. Is it running?')
  await page.context.unroute('**/api/lapwing/v1/session')
  await page.see('Sign in to lapwing')
})

test('people sign in at a provider, and come back to the address that they asked for', async ({ open, backend }) => {
  const provider = await Provider.start({ sub: '7', email: 'alice@example.org', groups: ['night'] })
  try {
    await backend.call('PUT', '/api/enterprise/authentication/v2/authproviders/sso', {
      type: 'oidc',
      api_version: 'authentication/v2',
      metadata: { name: 'sso' },
      spec: {
        server: provider.url,
        client_id: provider.client.id,
        client_secret: provider.client.secret,
        username_claim: 'email',
        groups_claim: 'groups',
        groups_prefix: 'sso',
        redirect_uri: `${backend.url}/api/enterprise/authentication/v2/oidc/callback`,
      },
    })
    await backend.call('POST', '/api/core/v2/clusterrolebindings', {
      metadata: { name: 'night' },
      role_ref: { type: 'ClusterRole', name: 'view' },
      subjects: [{ type: 'Group', name: 'sso:night' }],
    })
    const page = await open({ ...desktop, elsewhere: [provider.url] })
    provider.deny = true
    await page.go('/events?q=disk')
    await page.tab.getByRole('button', { name: 'sso' }).click()
    await page.tab.getByRole('alert').getByText('access_denied').waitFor()

    provider.deny = false
    await page.tab.getByRole('button', { name: 'sso' }).click()
    await page.row('web-1', 'disk').waitFor()
    const { pathname, search } = new URL(page.tab.url())
    assert.deepEqual({ pathname, search }, { pathname: '/events', search: '?q=disk' })
    await page.tab.getByRole('button', { name: 'Settings and sign-out' }).click()
    await page.see('alice@example.org')
  } finally {
    await provider.stop()
  }
})

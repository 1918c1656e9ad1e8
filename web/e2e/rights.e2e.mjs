import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene } from './harness/index.mjs'

const test = scene(async (backend) => {
  await fleet(backend)
  await backend.makeUser('viewer', 'viewer-secret', 'view')
  await backend.makeUser('stranger', 'stranger-secret', 'system:user')
})

test('a user who may only read is offered nothing else, and told why', async ({ open }) => {
  const page = await open()
  await page.signIn('/events', 'viewer', 'viewer-secret')
  await page.row('web-1', 'http').click()
  const detail = page.detail('http')
  const needed = {
    Acknowledge: 'create” on “silenced',
    Silence: 'create” on “silenced',
    Resolve: 'update” on “events',
    'Run again': 'create” on “checks',
  }
  for (const [name, right] of Object.entries(needed)) {
    const button = detail.getByRole('button', { name, disabled: true })
    await button.waitFor()
    assert.match(await button.getAttribute('title'), new RegExp(`You need the verb “${right}”`), name)
  }
  await page.press('x')
  const selected = page.tab.getByRole('toolbar', { name: 'Selected events' })
  for (const name of ['Silence', 'Acknowledge', 'Resolve', 'Delete']) await selected.getByRole('button', { name, disabled: true }).waitFor()
})

test('a user without rights is told what to ask for', async ({ open }) => {
  const page = await open()
  await page.signIn('/events', 'stranger', 'stranger-secret')
  await page.see('No access')
  await page.see('You need the verb “list” on “events” for this.')
  await page.go('/')
  await page.see('You need the verb “list” on “events” for this.')
})

test('each screen names the right that a user lacks', async ({ open }) => {
  const page = await open()
  await page.signIn('/', 'stranger', 'stranger-secret')
  const lacking = {
    '/': '“list” on “events”',
    '/events': '“list” on “events”',
    '/entities': '“list” on “entities”',
    '/silences': '“list” on “silenced”',
    '/oncall': '“list” on “rotas”',
    '/services': '“list” on “aggregates”',
    '/reports?ns=default': '“list” on “events”',
    '/wall': '“list” on “events”',
    '/checks': '“list” on “checks”',
    '/pipelines': '“list” on “pipelines”',
    '/config': '“list” on “checks”',
    '/queues': '“list” on “deadletters”',
    '/cluster': '“get” on “cluster”',
    '/audit': '“list” on “audit”',
    '/access': '“list” on “users”',
    '/trace?event=default/web-1/http': '“get” on “events”',
  }
  for (const [screen, right] of Object.entries(lacking)) {
    await page.go(screen)
    await page.see(`You need the verb ${right} for this.`)
  }
})

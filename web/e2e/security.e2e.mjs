import assert from 'node:assert/strict'
import { fleet } from './harness/fleet.mjs'
import { scene } from './harness/index.mjs'
import { screens, visit } from './harness/screens.mjs'

const test = scene(fleet)

// What breaks the policy is an error in the console, and open() collects those, as it does requests to other hosts.
test('no screen breaks the content security policy or asks another host', async ({ open }) => {
  const page = await open()
  const policies = new Set()
  page.tab.on('response', (response) => {
    if (response.request().resourceType() === 'document') policies.add(response.headers()['content-security-policy'])
  })
  await page.tab.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`))
  })
  for (const [i, screen] of screens.entries()) await visit(page, screen, i > 1)
  assert.equal(policies.size, screens.length, 'each answer has a nonce of its own')
  for (const policy of policies) {
    assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self' 'nonce-\w+';/)
    assert.doesNotMatch(policy, /unsafe/)
  }
})

test('a script that an attacker brings into the page does not run', async ({ open }) => {
  const page = await open()
  await page.go('/')
  const outcome = await page.tab.evaluate(
    () =>
      new Promise((resolve) => {
        document.addEventListener('securitypolicyviolation', (e) => resolve(e.violatedDirective))
        const script = document.createElement('script')
        script.textContent = 'document.title = "taken"'
        document.body.append(script)
      }),
  )
  assert.match(outcome, /^script-src/)
  assert.notEqual(await page.tab.title(), 'taken')
  page.problems.length = 0 // this one was meant
})

test('output of a check is shown as text', async ({ open, backend }) => {
  const page = await open()
  await page.signIn('/events?q=web-1')
  await backend.fail('web-1', 'disk', 2, '<img src=x onerror="document.title=1"><b>bold</b>')
  await page.row('web-1', 'disk', 'critical').getByText('<b>bold</b>').waitFor()
  await page.row('web-1', 'disk').click()
  await page.detail('disk').getByText('<img src=x').first().waitFor()
  assert.equal(await page.tab.locator('img[src=x]').count(), 0)
  await backend.pass('web-1', 'disk')
})

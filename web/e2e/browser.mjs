import { chromium } from 'playwright-core'

export const shots = new URL('./shots/', import.meta.url).pathname

export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  })
}

/** A page that fails the test on any uncaught error or broken content security policy. */
export async function newPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options })
  const page = await context.newPage()
  page.problems = []
  page.on('pageerror', (err) => page.problems.push(String(err)))
  page.on('console', (message) => {
    if (message.type() !== 'error') return
    // Refused sign-ins and cut streams are logged by the browser itself; tests cause them on purpose.
    if (/Failed to load resource|net::ERR/.test(message.text())) return
    page.problems.push(message.text())
  })
  return page
}

export async function signIn(page, { url, user, password }) {
  await page.goto(url)
  await page.getByLabel('Username').fill(user)
  await page.getByLabel('Password').fill(password)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByTestId('badge').getByText('Live').waitFor()
}

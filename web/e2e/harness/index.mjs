import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { Backend } from './backend.mjs'
import { launch, Page } from './page.mjs'

export { until } from './process.mjs'
export { desktop, phone } from './page.mjs'

const shots = join(tmpdir(), 'lapwing-e2e-failed')

/**
 * A backend and a browser for the tests of a file. begin starts the backend, and prepare makes what all of them need.
 * The function that it returns declares a test, which gets the backend and open(), and fails when a page had a problem;
 * then it prints the backend's log and where the screenshots are.
 */
export function scene(prepare = async () => {}, begin = () => Backend.start()) {
  let backend, browser
  before(async () => {
    backend = await begin()
    try {
      await prepare(backend)
      browser = await launch()
    } catch (err) {
      console.error(backend.tail())
      throw err
    }
  })
  after(async () => {
    await browser?.close()
    await backend?.stop()
  })
  return (name, body) =>
    test(name, { timeout: 180_000 }, async (t) => {
      const pages = []
      const open = async (options) => {
        const page = await Page.open(browser, backend, options)
        pages.push(page)
        return page
      }
      try {
        await body({ backend, open, t })
        assert.deepEqual(
          pages.flatMap((page) => page.problems),
          [],
          'problems of the page',
        )
      } catch (err) {
        await report(name, pages, backend)
        throw err
      } finally {
        await Promise.all(pages.map((page) => page.close()))
      }
    })
}

async function report(name, pages, backend) {
  mkdirSync(shots, { recursive: true })
  for (const [i, page] of pages.entries()) {
    const path = join(shots, `${name.replaceAll(/\W+/g, '-')}-${i}.png`)
    await page.tab.screenshot({ path }).then(
      () => console.error(`screenshot: ${path} (${page.tab.url()})`),
      (err) => console.error(`no screenshot: ${err.message}`),
    )
    for (const problem of page.problems) console.error(problem)
  }
  console.error(`log of the backend:\n${backend.tail()}`)
}

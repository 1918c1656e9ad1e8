import { expect, test } from 'vitest'
import { lines } from '../../api/bulk'
import type { BulkReport, BulkRequest } from '../../api/types'
import { act, requestsOf, selectorOf } from './bulk'

test('the condition for some events', () => {
  expect(selectorOf(['default/a/x'])).toBe('event.entity.name == "a" && event.check.name in ["x"]')
  expect(selectorOf(['default/a/x', 'default/a/y', 'default/b/x'])).toBe(
    '(event.entity.name == "a" && event.check.name in ["x", "y"]) || (event.entity.name == "b" && event.check.name in ["x"])',
  )
})

test('each namespace is asked by itself', () => {
  expect(requestsOf({ kind: 'picked', keys: ['n1/a/x', 'n2/a/x'] }).map(({ namespace }) => namespace)).toEqual(['n1', 'n2'])
  expect(requestsOf({ kind: 'matching', namespace: '-', selector: '', search: '', total: 9 })).toEqual([
    { namespace: '-', field_selector: '', all: true },
  ])
})

const streamOf = (...chunks: string[]) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(new TextEncoder().encode(chunk))
      controller.close()
    },
  })

test('lines that come in pieces', async () => {
  const got: string[] = []
  for await (const line of lines(streamOf('{"a":', '1}\n{"b"', ':2}\n\n{"c":3}'))) got.push(line)
  expect(got).toEqual(['{"a":1}', '{"b":2}', '{"c":3}'])
})

const report = (part: Partial<BulkReport>): BulkReport => ({
  resource: 'events',
  action: 'resolve',
  dry_run: false,
  matched: 0,
  done: 0,
  denied: 0,
  failed: 0,
  finished: true,
  objects: [],
  ...part,
})

test('progress of several namespaces adds up', async () => {
  const asked: BulkRequest[] = []
  const fetch = (async (_: string, init: RequestInit) => {
    asked.push(JSON.parse(String(init.body)) as BulkRequest)
    return new Response(
      streamOf(`${JSON.stringify(report({ done: 1, finished: false }))}\n${JSON.stringify(report({ matched: 2, done: 2 }))}\n`),
    )
  }) as typeof globalThis.fetch
  const seen: number[] = []
  const target = { kind: 'picked' as const, keys: ['n1/a/x', 'n1/a/y', 'n2/a/x', 'n2/a/y'] }
  const last = await act(fetch, target, { action: 'resolve' }, { dry: false, matched: 4, onProgress: ({ done }) => seen.push(done) })
  expect(seen).toEqual([1, 2, 3, 4])
  expect(last).toMatchObject({ matched: 4, done: 4, finished: true })
  expect(asked[0]).toMatchObject({ resource: 'events', action: 'resolve', at_most: 5, dry_run: false })
})

test('a connection that ends early is an error', async () => {
  const fetch = (async () => new Response(streamOf(`${JSON.stringify(report({ finished: false }))}\n`))) as typeof globalThis.fetch
  await expect(act(fetch, { kind: 'picked', keys: ['n/a/x'] }, { action: 'resolve' }, { dry: false })).rejects.toThrow(
    'lost before the end',
  )
})

import { expect, test } from 'vitest'
import { flowOfHandler, flowsOf, missingIn, statesOf } from './flow'
import { pipelinesSearch } from './search'

const known = { filters: new Set(['f']), mutators: new Set<string>(), handlers: new Set(['h']) }
const pipeline = {
  workflows: [
    { name: 'a', filters: [{ name: 'is_incident' }, { name: 'f' }], mutator: { name: 'm' }, handler: { name: 'h' } },
    { name: 'b', filters: null, handler: { name: 'gone' } },
  ],
}

test('what is not defined is marked, built-in filters are not', () => {
  const flows = flowsOf(pipeline, known)
  expect(flows[0]?.filters.map(({ missing }) => missing)).toEqual([false, false])
  expect(flows[0]?.mutator?.missing).toBe(true)
  expect(flows[1]?.handler?.missing).toBe(true)
  expect(missingIn(flows)).toBe(2)
  expect(missingIn(flowsOf(pipeline, undefined))).toBe(0) // not yet known
  expect(missingIn(flowOfHandler({ type: 'set', handlers: ['h', 'x'] }, known))).toBe(1)
})

test('a dry run on a workflow', () => {
  const [flow] = flowsOf(pipeline, known)
  if (!flow) throw new Error('no flow')
  const steps = [
    { kind: 'filter', name: 'is_incident', verdict: 'pass' },
    { kind: 'filter', name: 'f', verdict: 'deny' },
  ]
  expect(statesOf(flow, { steps, verdict: 'filtered' })).toEqual({ filters: ['pass', 'deny'], mutator: 'skipped', handler: 'skipped' })
  const all = [...steps.map((step) => ({ ...step, verdict: 'pass' })), { kind: 'mutator', name: 'm', verdict: 'pass' }]
  expect(statesOf(flow, { steps: all, verdict: 'delivered' })).toEqual({ filters: ['pass', 'pass'], mutator: 'pass', handler: 'reached' })
})

test('what the address says', () => {
  expect(pipelinesSearch({ tab: 'filters', open: 'n/f', at: '5', x: 1 })).toEqual({ tab: 'filters', open: 'n/f', at: 5 })
  expect(pipelinesSearch({ tab: 'pipelines', at: 'x' })).toEqual({})
})

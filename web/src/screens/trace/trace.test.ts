import { expect, test } from 'vitest'
import { readDrafts } from './drafts'
import { axisOf, barOn, letterOf, usedBy, verdictMark } from './present'
import { traceSearch } from './search'

test('what the address says', () => {
  expect(traceSearch({ event: 'a/b/c', until: '12', simulate: true, junk: 1 })).toEqual({ event: 'a/b/c', until: 12, simulate: true })
  expect(traceSearch({ until: 'x', simulate: 'no' })).toEqual({})
})

test('attempts have places between the receipt and the next attempt', () => {
  const axis = axisOf({ received: 1000, updated: 1500, attempts: [{ at: 1000, millis: 500, result: 'failed', next: 3000 }] })
  expect(axis).toEqual({ from: 1000, to: 3000 })
  expect(barOn(axis, 1000, 500)).toEqual({ left: 0, width: 25 })
  expect(barOn(axis, 3000, 0)).toEqual({ left: 98.5, width: 1.5 })
  expect(axisOf({ received: 0, updated: 5, attempts: null })).toEqual({ from: 5, to: 6 })
})

test('a denial is no failure', () => {
  expect(['delivered', 'filtered', 'silenced', 'dead', 'waiting', ''].map(verdictMark)).toEqual([
    'ok',
    'ended',
    'ended',
    'critical',
    'warning',
    'unknown',
  ])
})

test('the dead letter and the definitions of a delivery', () => {
  const delivery = {
    id: '1-2-0/p/w/h',
    event: '1-2-0',
    namespace: 'n',
    entity: 'e',
    check: 'c',
    status: 2,
    received: 1,
    updated: 1,
    verdict: 'dead' as const,
    handler: 'h',
    pipeline: 'p',
  }
  const letter = {
    id: '1-2-64.h',
    namespace: 'n',
    handler: 'h',
    entity: 'e',
    check: 'c',
    status: 2,
    reason: 'r',
    attempts: 1,
    first: 5,
    last: 5,
  }
  const attempts = [{ at: 5, millis: 1, result: 'failed' }]
  expect(letterOf([{ ...letter, first: 4 }, { ...letter, handler: 'x' }, letter], { ...delivery, attempts })).toBe(letter)
  const steps = [
    { kind: 'filter', name: 'is_incident' },
    { kind: 'filter', name: 'f' },
    { kind: 'mutator', name: 'm' },
  ]
  expect(usedBy([{ ...delivery, steps }, delivery])).toEqual(['pipelines/p', 'handlers/h', 'filters/f', 'mutators/m'])
})

test('drafts are sorted by type', () => {
  const handler = 'type: Handler\nmetadata: {name: a}\nspec: {type: pipe}\n'
  const drafts = readDrafts(`${handler}---\ntype: EventFilter\nmetadata: {name: f}\nspec: {action: allow}\n---\n`, 'ns')
  expect(drafts.handlers).toEqual([{ type: 'pipe', metadata: { name: 'a', namespace: 'ns' } }])
  expect(drafts.filters).toHaveLength(1)
  expect(readDrafts('', 'ns').handlers).toEqual([])
  for (const bad of ['type: CheckConfig\nmetadata: {name: a}', 'type: Handler\nspec: {}', 'a: [1\nb: 2']) {
    expect(() => readDrafts(bad, 'ns')).toThrow()
  }
})

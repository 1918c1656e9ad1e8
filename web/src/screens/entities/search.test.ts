import { expect, test } from 'vitest'
import { entitiesSearch, isChosen, toggled } from './search'

test('the address', () => {
  expect(entitiesSearch({ ns: 'a', q: 'web', view: 'map', worst: 'critical', other: 1, sort: '' })).toEqual({
    ns: 'a',
    q: 'web',
    view: 'map',
    worst: 'critical',
  })
})

test.each([
  ['os', 'linux', {}, { q: 'os == "linux"' }],
  ['label:region', 'eu', { q: 'os == "linux"' }, { q: 'os == "linux" && label.region == "eu"' }],
  ['subscription', 'web', { q: 'web' }, { q: 'entity.name =~ "(?i)web" && "web" in subscriptions' }],
  ['label:region', '', {}, { q: '!(label.region =~ "")' }],
  ['agent', 'late', { agent: 'gone' }, { agent: 'gone,late' }],
  ['worst', 'critical', {}, { worst: 'critical' }],
  ['backend', 'b1', { backend: 'b2' }, { backend: 'b1' }],
])('%s %s is chosen, and chosen no longer', (by, value, search, want) => {
  expect(isChosen(search, by, value)).toBe(false)
  const next = { ...search, ...toggled(search, by, value) }
  expect(next).toEqual(want)
  expect(isChosen(next, by, value)).toBe(true)
  expect(isChosen({ ...next, ...toggled(next, by, value) }, by, value)).toBe(false)
})

test('what no search can say', () => {
  expect(toggled({}, 'subscription', '')).toBeUndefined()
  expect(toggled({}, 'backend', '')).toBeUndefined()
})

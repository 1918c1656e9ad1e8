import { expect, test } from 'vitest'
import { eventConditions, requestsOf, selectionsOf, type Target } from './bulk'

const selected = { namespace: 'default', selector: 'entity.system.os == linux', agent: '', worst: '', backend: '' }
const matching: Target = { kind: 'matching', selected, condition: 'event.entity.system.os == linux', total: 9 }

test('entities by name, each namespace by itself', () => {
  expect(selectionsOf(['a/x', 'b/z', 'a/y'], 'entity.name')).toEqual([
    { namespace: 'a', field_selector: 'entity.name in ["x", "y"]' },
    { namespace: 'b', field_selector: 'entity.name in ["z"]' },
  ])
  const many = selectionsOf(
    Array.from({ length: 600 }, (_, i) => `a/host-${i}`),
    'entity.name',
  )
  expect(many).toHaveLength(3)
  expect(many.map(({ field_selector }) => field_selector.split(',').length)).toEqual([250, 250, 100])
})

test('entities by the search', () => {
  expect(requestsOf(matching, [])).toEqual([{ namespace: 'default', field_selector: 'entity.system.os == linux', all: false }])
  expect(eventConditions(matching, [])).toEqual([{ namespace: 'default', field_selector: 'event.entity.system.os == linux' }])
  expect(requestsOf({ ...matching, selected: { ...selected, selector: '' } }, [])).toMatchObject([{ field_selector: '', all: true }])
})

test('a filter that selectors do not know makes it names', () => {
  const late: Target = { ...matching, selected: { ...selected, agent: 'late' } }
  expect(requestsOf(late, ['default/x'])).toEqual([{ namespace: 'default', field_selector: 'entity.name in ["x"]', all: false }])
  expect(requestsOf(late, [])).toEqual([])
  expect(eventConditions(late, ['default/x'])).toEqual([{ namespace: 'default', field_selector: 'event.entity.name in ["x"]' }])
})

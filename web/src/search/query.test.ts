import { expect, test } from 'vitest'
import { entityLanguage } from './fields'
import { allOf, isUnfinished, parseQuery, withTerm, withoutChip } from './query'

const word = (w: string) => `(event.entity.name =~ "(?i)${w}" || event.check.name =~ "(?i)${w}")`

test.each([
  ['', '', []],
  ['  ', '', []],
  ['web', word('web'), ['web']],
  ['web cpu', `${word('web')} && ${word('cpu')}`, ['web', 'cpu']],
  ['a.b*', word('a\\\\.b\\\\*'), ['a.b*']],
  ['say "hi', `${word('say')} && ${word('\\"hi')}`, ['say', '"hi']],
  ['event.check.status == 2', 'event.check.status == 2', ['event.check.status == 2']],
  [
    'event.check.status == 2 && region == "a && b"',
    'event.check.status == 2 && region == "a && b"',
    ['event.check.status == 2', 'region == "a && b"'],
  ],
  ['a == 1 || b == 2', '(a == 1 || b == 2)', ['a == 1 || b == 2']],
  ['(a == 1 || b == 2) && c == 3', '(a == 1 || b == 2) && c == 3', ['(a == 1 || b == 2)', 'c == 3']],
  ['linux in event.check.subscriptions', 'linux in event.check.subscriptions', ['linux in event.check.subscriptions']],
])('%s', (text, selector, chips) => {
  expect(parseQuery(text)).toEqual({ selector, chips })
})

test('words for entities are in their names', () => {
  expect(parseQuery('web a.b', entityLanguage).selector).toBe('entity.name =~ "(?i)web" && entity.name =~ "(?i)a\\\\.b"')
  expect(withTerm('web', 'os == linux', entityLanguage)).toBe('entity.name =~ "(?i)web" && os == linux')
})

test('chips can be taken off', () => {
  expect(withoutChip('web cpu', 0)).toBe('cpu')
  expect(withoutChip('a == 1 && b == 2', 1)).toBe('a == 1')
  expect(withoutChip('web', 0)).toBe('')
})

test('terms can be added', () => {
  expect(withTerm('', 'a == 1')).toBe('a == 1')
  expect(withTerm('a == 1', 'b == 2')).toBe('a == 1 && b == 2')
  expect(withTerm('web', 'b == 2')).toBe(`${word('web')} && b == 2`)
})

test('selectors are joined', () => {
  expect(allOf('', '')).toBe('')
  expect(allOf('a == 1', '')).toBe('a == 1')
  expect(allOf('a == 1 || b == 2', 'c == 3')).toBe('(a == 1 || b == 2) && c == 3')
})

test.each(['status ==', 'status > 0 &&', 'status > 0 && che', 'check in [a,', '!(', 'web in'])('%s is unfinished', (text) => {
  expect(isUnfinished(text)).toBe(true)
})

test.each(['', 'web disk', 'status == 2', 'status > 0 && check == disk', 'check in [a, b]'])('"%s" is finished', (text) => {
  expect(isUnfinished(text)).toBe(false)
})

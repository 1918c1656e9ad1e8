import { expect, test } from 'vitest'
import { formatSearch, parseSearch } from './address'

test.each([
  ['', {}],
  ['?q=disk', { q: 'disk' }],
  ['?q=404', { q: '404' }],
  ['?q=true&event=null', { q: 'true', event: 'null' }],
  ['?q=%7B%22a%22%3A1%7D', { q: '{"a":1}' }],
  ['?target=a%28b%29&target=c', { target: ['a(b)', 'c'] }],
])('reads and writes %s', (search, params) => {
  expect(parseSearch(search)).toEqual(params)
  expect(formatSearch(params)).toBe(search)
})

test('the last of several values counts, and what is undefined is left out', () => {
  expect(parseSearch('?q=a&q=b')).toEqual({ q: 'b' })
  expect(formatSearch({ q: undefined, ns: 'dev' })).toBe('?ns=dev')
})

import { expect, test } from 'vitest'
import { formatView, parseView, type ViewState } from './view-state'

const plain: ViewState = { namespace: '-', query: '', groups: [], incidentsFirst: true, event: undefined }

test.each<[string, ViewState]>([
  ['', plain],
  ['?ns=production', { ...plain, namespace: 'production' }],
  ['?q=connection+refused', { ...plain, query: 'connection refused' }],
  ['?q=%26a%3D%231', { ...plain, query: '&a=#1' }],
  ['?status=critical,ok', { ...plain, groups: ['critical', 'ok'] }],
  ['?order=name', { ...plain, incidentsFirst: false }],
  ['?event=default/web:1/http', { ...plain, event: { namespace: 'default', entity: 'web:1', check: 'http' } }],
])('%s', (search, view) => {
  expect(parseView(search)).toEqual(view)
  expect(formatView(view)).toBe(search)
})

test('nonsense is the default view', () => {
  expect(parseView('?status=x,&event=a/b&ns=&order=')).toEqual(plain)
  expect(parseView('?event=a/b/c/d').event).toBeUndefined()
})

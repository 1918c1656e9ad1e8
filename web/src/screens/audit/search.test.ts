import { expect, test } from 'vitest'
import type { AuditEntry } from '../../api/types'
import { changesOf, summary } from './present'
import { asked, auditSearch } from './search'

const entry = (changes: AuditEntry['changes']) => ({ changes }) as AuditEntry

test('the address and the request', () => {
  const search = auditSearch({ ns: 'a', kind: 'checks', user: '', entry: '7', since: '24h', x: 'y' })
  expect(search).toEqual({ ns: 'a', kind: 'checks', entry: '7', since: '24h' })
  expect(asked(search)).toEqual({ resource: 'checks', since: '24h' })
})

test('changes', () => {
  const changes = [
    { path: '/interval', old: 10, new: 20 },
    { path: '/metadata/labels/a~1b', new: 'x' },
    { path: '', old: { a: 1 } },
  ]
  expect(changesOf(entry(changes))).toEqual([
    { path: '/interval', before: '10\n', after: '20\n' },
    { path: '/metadata/labels/a~1b', before: '', after: 'x\n' },
    { path: '', before: 'a: 1\n', after: '' },
  ])
  expect(summary(entry(changes))).toBe('interval, metadata.labels.a/b, everything')
  expect(summary(entry(null))).toBe('')
})

import { describe, expect, it } from 'vitest'
import type { AuditEntry, Silenced } from '../../api/types'
import { again, endedOf, extended, hasWords, kindOf, partsOf, subjectOf } from './model'

const silence = (fields: Partial<Silenced>): Silenced => ({ metadata: { namespace: 'default', name: '*:disk' }, ...fields }) as Silenced

describe('silences', () => {
  it('know what they are about', () => {
    expect(subjectOf(silence({ subscription: 'entity:web1', check: '*' }))).toEqual({ entity: 'web1' })
    expect(subjectOf(silence({ subscription: 'linux', check: 'disk' }))).toEqual({ subscription: 'linux', check: 'disk' })
    expect(subjectOf(silence({ label_selector: 'region == eu', field_selector: 'event.check.status == 1' }))).toEqual({
      selectors: 'region == eu && event.check.status == 1',
    })
  })

  it('have a kind', () => {
    expect(kindOf(silence({ begin: 5 }), 10)).toBe('active')
    expect(kindOf(silence({ begin: 15 }), 10)).toBe('scheduled')
    expect(kindOf(silence({ begin: 15, calendars: ['nights'] }), 10)).toBe('recurring')
    expect(kindOf(silence({ acknowledgement: true }), 10)).toBe('acknowledgement')
  })

  it('are found by words', () => {
    const one = silence({ reason: 'New disks', creator: 'alice' })
    expect(hasWords(one, 'ALICE disks')).toBe(true)
    expect(hasWords(one, 'bob')).toBe(false)
    expect(hasWords(one, '')).toBe(true)
  })

  it('end later from their end, from their begin or from now', () => {
    expect(extended(silence({ begin: 5, expire_at: 50, expire: 45 }), 10, 20)).toEqual(silence({ begin: 5, expire_at: 60 }))
    expect(extended(silence({ begin: 5 }), 10, 20.5).expire_at).toBe(30)
    expect(extended(silence({ begin: 100 }), 10, 20).expire_at).toBe(110)
  })

  it('are made again without what the server sets', () => {
    expect(again(silence({ creator: 'alice', expire: 3, expire_at: 9, limited_to: ['a == b'] }))).toEqual(silence({ expire_at: 9 }))
  })

  it('have keys with slashes in names', () => {
    expect(partsOf('default/a/b')).toEqual({ namespace: 'default', name: 'a/b' })
  })
})

describe('ended silences', () => {
  const entry = (id: number, action: string, changes: AuditEntry['changes']): AuditEntry => ({
    id,
    time: new Date(id * 1000).toISOString(),
    user: 'bob',
    action,
    resource: 'silenced',
    namespace: 'default',
    name: '*:disk',
    changes: changes ?? null,
  })
  const made = silence({ begin: 10, expire_at: 100 })

  it('were deleted by someone', () => {
    const entries = [entry(50, 'delete', [{ path: '', old: made }]), entry(10, 'create', [{ path: '', new: made }])]
    expect(endedOf(entries, new Set(), 200)).toEqual([{ key: 'default/*:disk', silence: made, at: 50, by: 'bob' }])
  })

  it('expired at their last end', () => {
    const entries = [entry(20, 'update', [{ path: '/expire_at', old: 100, new: 150 }]), entry(10, 'create', [{ path: '', new: made }])]
    expect(endedOf(entries, new Set(), 140)).toEqual([])
    expect(endedOf(entries, new Set(), 200).map(({ at, by }) => [at, by])).toEqual([[150, undefined]])
    expect(endedOf(entries, new Set(['default/*:disk']), 200)).toEqual([])
  })

  it('ended when the check passed', () => {
    const entries = [entry(10, 'create', [{ path: '', new: silence({ begin: 10, expire_on_resolve: true }) }])]
    expect(endedOf(entries, new Set(), 200).map(({ at, resolved }) => [at, resolved])).toEqual([[0, true]])
  })
})

import { describe, expect, it } from 'vitest'
import type { Contact, OnCallShift, Rota } from '../../api/types'
import { contactsIn, gapsOf, reachOf, shiftAfter, shiftAt, withOverride, withoutOverride } from './model'

const shift = (contact: string, begin: number, end: number): OnCallShift => ({ contact, begin, end, until: end })

describe('turns', () => {
  const shifts = [shift('alice', 10, 20), shift('bob', 30, 40)]

  it('leave gaps', () => {
    expect(gapsOf(shifts, 0, 50)).toEqual([
      { begin: 0, end: 10 },
      { begin: 20, end: 30 },
      { begin: 40, end: 50 },
    ])
    expect(gapsOf([shift('alice', 0, 50)], 0, 50)).toEqual([])
    expect(gapsOf([], 0, 50)).toEqual([{ begin: 0, end: 50 }])
    expect(gapsOf([shift('alice', 0, 40), shift('bob', 10, 20)], 0, 50)).toEqual([{ begin: 40, end: 50 }])
  })

  it('are found by time', () => {
    expect(shiftAt(shifts, 10)?.contact).toBe('alice')
    expect(shiftAt(shifts, 20)).toBeUndefined()
    expect(shiftAfter(shifts, 12)?.contact).toBe('bob')
    expect(contactsIn(shifts, 15, 35)).toEqual(['alice', 'bob'])
    expect(contactsIn(shifts, 20, 30)).toEqual([])
  })

  it('are overridden', () => {
    const rota = { metadata: { name: 'primary' }, contacts: ['alice'] } as Rota
    const over = { contact: 'bob', begin: 1, end: 2, reason: '' }
    expect(withOverride(rota, over).overrides).toEqual([over])
    expect(withoutOverride(withOverride(rota, over), 0).overrides).toEqual([])
  })
})

describe('contacts', () => {
  const contact = (fields: Partial<Contact>) => ({ metadata: { name: 'alice', namespace: 'default' }, ...fields }) as Contact
  const handlers = [
    { metadata: { name: 'mail', namespace: 'default' }, type: 'email' },
    { metadata: { name: 'chat', namespace: 'prod' }, type: 'pipe' },
  ]

  it('are reached by handlers of their namespace', () => {
    expect(reachOf(contact({ handlers: ['mail'], email: 'a@example.org' }), handlers).broken).toBeUndefined()
    expect(reachOf(contact({ handlers: ['mail'] }), handlers).broken).toBe('email')
    expect(reachOf(contact({ handlers: ['chat'] }), handlers).broken).toBe('missing')
    expect(reachOf(contact({}), handlers).broken).toBe('none')
    expect(reachOf(contact({ handlers: ['chat'] }), undefined).broken).toBeUndefined()
  })
})

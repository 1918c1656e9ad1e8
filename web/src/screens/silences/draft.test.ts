import { describe, expect, it } from 'vitest'
import { newDraft, silenceOf, type Draft } from './draft'

const now = new Date('2026-11-28T21:00:00Z')
const of = (fields: Partial<Draft>) => silenceOf({ ...newDraft('default'), name: 'one', reason: ' disks ', ...fields }, now)

describe('a silence that is being typed', () => {
  it('waits for what is silenced', () => {
    expect(of({})).toBeUndefined()
    expect(of({ scope: 'check' })).toBeUndefined()
    expect(of({ scope: 'selector', fields: 'check == disk', name: '' })).toBeUndefined()
    expect(of({ entity: 'web1', namespace: '' })).toBeUndefined()
  })

  it('has a subject, a reason and a length', () => {
    expect(of({ entity: 'web1' })).toEqual({
      metadata: { namespace: 'default', name: '' },
      subscription: 'entity:web1',
      reason: 'disks',
      expire: 3600,
    })
    expect(of({ scope: 'subscription', subscription: 'linux', check: 'disk', ends: '0' })).toMatchObject({
      subscription: 'linux',
      check: 'disk',
      expire: -1,
    })
    expect(of({ scope: 'selector', labels: 'region == eu', fields: 'check == disk' })).toMatchObject({
      metadata: { name: 'one' },
      label_selector: 'region == eu',
      field_selector: 'event.check.name == disk',
    })
  })

  it('has moments', () => {
    expect(of({ entity: 'web1', begin: 'moment' })).toBeUndefined()
    expect(of({ entity: 'web1', ends: 'moment' })).toBeUndefined()
    expect(of({ entity: 'web1', begin: 'moment', beginAt: 1000, ends: 'moment', endAt: 2000 })).toMatchObject({
      begin: 1000,
      expire_at: 2000,
    })
  })

  it('has windows and calendars', () => {
    const windows = [
      { rule: 'cron' as const, text: '0 2 * * *', zone: 'Europe/Berlin', minutes: '90' },
      { rule: 'rrule' as const, text: ' ', zone: '', minutes: '60' },
    ]
    expect(of({ entity: 'web1', windows, calendars: ['nights'] })).toMatchObject({
      windows: [{ cron: '0 2 * * *', time_zone: 'Europe/Berlin', duration: 5400 }],
      calendars: ['nights'],
    })
  })
})

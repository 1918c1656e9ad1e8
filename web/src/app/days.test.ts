import { describe, expect, it } from 'vitest'
import { dayOf, days, dayText, later, monday, place, shortDay } from './days'

describe('a strip of days', () => {
  it('has the part of a span that is in it', () => {
    expect(place({ begins: 0, ends: 150 }, 100, 200)).toEqual({ left: 0, width: 0.5, before: true, after: false })
    expect(place({ begins: 150, ends: 0 }, 100, 200)).toEqual({ left: 0.5, width: 0.5, before: false, after: true })
    expect(place({ begins: 200, ends: 300 }, 100, 200)).toBeUndefined()
    expect(place({ begins: 0, ends: 100 }, 100, 200)).toBeUndefined()
  })

  it('begins on a Monday', () => {
    const sunday = new Date('2026-11-29T21:00:00Z')
    expect(dayText(monday(sunday, true), true)).toBe('2026-11-23')
    expect(dayText(monday(new Date('2026-11-23T00:00:00Z'), true), true)).toBe('2026-11-23')
    expect(days(monday(sunday, true), 2, true)).toEqual([1795392000, 1795478400, 1795564800])
    expect(dayOf('2026-11-23', true)?.getTime()).toBe(1795392000_000)
    expect(dayOf('tomorrow', true)).toBeUndefined()
  })

  it('goes on in other weeks', () => {
    const day = new Date('2026-11-23T00:00:00Z')
    expect(dayText(later(day, 14, true), true)).toBe('2026-12-07')
    expect(shortDay(day.getTime() / 1000, true)).toBe('23 Nov')
  })
})

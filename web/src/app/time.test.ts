import { expect, test } from 'vitest'
import { fieldOf, unixOf } from './time'

test('moments in fields for dates and times', () => {
  expect(fieldOf(1_795_900_600, 'utc')).toBe('2026-11-28T21:16')
  expect(unixOf('2026-11-28T21:16', 'utc')).toBe(1_795_900_560)
  expect(unixOf('', 'local')).toBeUndefined()
  for (const zone of ['local', 'utc'] as const) expect(unixOf(fieldOf(1_795_900_560, zone), zone)).toBe(1_795_900_560)
})

import { expect, test } from 'vitest'
import { health, type HealthInput } from './health'

const now = 1_000_000_000
const base: HealthInput = {
  stream: { phase: 'live' },
  namespace: '-',
  synced: true,
  size: 1234,
  heard: now - 500,
  lag: { ms: 40, at: now - 500 },
  now,
}

test.each<[string, Partial<HealthInput>, string, string]>([
  ['live', {}, 'live', 'Live'],
  ['a heartbeat is due only every 5 s', { heard: now - 7_000 }, 'live', 'Live'],
  ['silent', { heard: now - 9_000 }, 'late', '9 s behind'],
  ['the page is slow', { lag: { ms: 4200, at: now - 100 } }, 'late', '4 s behind'],
  ['the page was slow', { lag: { ms: 4200, at: now - 5000 } }, 'live', 'Live'],
  ['first connection', { stream: { phase: 'connecting' }, synced: false }, 'busy', 'Connecting…'],
  ['first load', { stream: { phase: 'loading' }, synced: false }, 'busy', 'Loading 1,234…'],
  ['reconnecting', { stream: { phase: 'connecting' }, heard: now - 7000 }, 'down', 'Reconnecting · 7 s behind'],
  ['waiting', { stream: { phase: 'waiting', until: now + 3000, reason: 'gone' }, heard: now - 70_000 }, 'down', 'Reconnecting · 1 m 10 s behind'],
  ['never reached', { stream: { phase: 'waiting', until: now + 3000, reason: 'gone' }, synced: false }, 'down', 'Cannot connect'],
  ['denied', { stream: { phase: 'denied', reason: 'list' } }, 'down', 'No access'],
])('%s', (_, input, tone, label) => {
  expect(health({ ...base, ...input })).toMatchObject({ tone, label })
})

test('says what is missing and when it tries again', () => {
  expect(health({ ...base, stream: { phase: 'denied', reason: 'list' }, namespace: 'dev' }).help).toContain('“list” on “events”')
  expect(health({ ...base, stream: { phase: 'waiting', until: now + 3000, reason: 'gone' } }).help).toBe('Gone. Next try in 3 s.')
})

import { describe, expect, test } from 'vitest'
import type { SensuEvent } from '../../api/types'
import { impactOf, servicesOf, statusOf } from './services'

const event = (service: string, group: string, status: number, output = '') =>
  ({
    entity: { metadata: { namespace: 'default', name: group === '' ? service : `${service}-${group}` } },
    check: {
      metadata: { name: 'aggregate', labels: { 'lapwing.io/aggregate': service, 'lapwing.io/aggregate-group': group } },
      status,
      output,
    },
    metadata: { annotations: { 'lapwing.io/aggregate': '{"members":4,"failing":1}' } },
  }) as unknown as SensuEvent
const aggregate = (name: string) => ({ metadata: { namespace: 'default', name } })

const services = servicesOf(
  [aggregate('shop'), aggregate('db'), aggregate('new')],
  [event('db', 'a', 0), event('db', 'b', 1), event('db', 'c', 2), event('shop', '', 2, '1 of 3 failing\ndb-c/aggregate\n')],
)

describe('servicesOf', () => {
  test('has the worst group first', () => expect(services[1]?.results.map(({ group }) => group)).toEqual(['c', 'b', 'a']))
  test('reads the figures', () => expect(services[0]?.results[0]).toMatchObject({ failing: 1, members: 4 }))
  test('knows no status before the first evaluation', () => expect(services.map(statusOf)).toEqual([2, 2, undefined]))
})

test('impactOf finds the services that name it', () => {
  const [shop, db] = services
  if (!shop || !db) throw new Error('missing')
  expect(impactOf(db, services).map(({ name }) => name)).toEqual(['shop'])
  expect(impactOf(shop, services)).toEqual([])
})

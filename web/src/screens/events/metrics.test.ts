import { describe, expect, test } from 'vitest'
import { metricsOf, mostCharts, mostLines, seriesLabel, shownMetrics } from './metrics'

const one = (name: string, tags: Record<string, string> = {}) => ({
  name,
  tags: { entity: 'web1', ...tags },
  target: `${name};${JSON.stringify(tags)}`,
})

describe('metricsOf', () => {
  const many = Array.from({ length: 30 }, (_, i) => one('disk', { mount: `/${i}` }))
  test('keeps the first series of each, and says how many there are', () => {
    const [disk, load] = metricsOf([...many, one('load')])
    expect([disk?.series.length, disk?.total, load?.series.length]).toEqual([mostLines, 30, 1])
  })
})

describe('shownMetrics', () => {
  const all = metricsOf(Array.from({ length: 20 }, (_, i) => one(`m${i}`)))
  test('the first ones', () => expect(shownMetrics(all, undefined).map(({ name }) => name)).toEqual(['m0', 'm1', 'm2']))
  test('the chosen ones', () => expect(shownMetrics(all, ['m7', 'gone']).map(({ name }) => name)).toEqual(['m7']))
  test('the first ones of a check without the chosen ones', () => expect(shownMetrics(all, ['gone'])).toHaveLength(3))
  test('no more than can be drawn', () =>
    expect(
      shownMetrics(
        all,
        all.map(({ name }) => name),
      ),
    ).toHaveLength(mostCharts))
})

test('seriesLabel has the tags that are not of the event', () => {
  expect(seriesLabel(one('disk', { mount: '/' }))).toBe('mount=/')
  expect(seriesLabel(one('load'))).toBe('load')
})

import { describe, expect, test } from 'vitest'
import { argumentsOf, byTags, chainOf, targetOf, writeCall } from './target'

const series = (name: string) => name !== 'seriesByTag'

describe('chainOf', () => {
  test.each([
    ['servers.*.load', 'servers.*.load', []],
    ["scale(movingAverage(a.b, '5min'), 2)", 'a.b', ['movingAverage', 'scale']],
    ["sumSeries(seriesByTag('a=b', 'c=d'))", "seriesByTag('a=b', 'c=d')", ['sumSeries']],
    ['scale(a.{b,c}.d, 2)', 'a.{b,c}.d', ['scale']],
    ['scale(a.b, 2', 'scale(a.b, 2', []],
  ])('%s', (target, base, names) => {
    const chain = chainOf(target, series)
    expect([chain.base, chain.calls.map(({ name }) => name)]).toEqual([base, names])
    expect(targetOf(chain)).toBe(target)
  })
})

test('argumentsOf keeps commas in quotes and brackets', () =>
  expect(argumentsOf("a.{b,c}, 'x,y', f(1, 2)")).toEqual(['a.{b,c}', "'x,y'", 'f(1, 2)']))

describe('writeCall', () => {
  const parameter = (name: string, type: string, multiple = false) => ({ name, type, multiple, required: false, options: [] })
  test('quotes text, not numbers', () =>
    expect(writeCall('f', [parameter('window', 'intOrInterval'), parameter('n', 'integer')], { window: '5min', n: '3' }).rest).toEqual([
      "'5min'",
      '3',
    ]))
  test('names what is behind a gap', () =>
    expect(writeCall('f', [parameter('a', 'string'), parameter('b', 'boolean')], { b: 'true' }).rest).toEqual(['b=true']))
  test('takes several nodes', () => expect(writeCall('f', [parameter('nodes', 'node', true)], { nodes: '1, 2' }).rest).toEqual(['1', '2']))
})

test('byTags', () =>
  expect(
    byTags([
      ['host', 'web1'],
      ['name', "it's"],
    ]),
  ).toBe(`seriesByTag('host=web1', "name=it's")`))

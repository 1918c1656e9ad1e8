import { expect, test } from 'vitest'
import { Row } from './row'
import { compileQuery, parseQuery } from './search'

test.each<[string, string[]]>([
  ['', []],
  ['  ', []],
  ['Web', ['web']],
  ['web  db', ['web', 'db']],
  ['"connection refused" Web', ['connection refused', 'web']],
  ['"unfinished quote', ['unfinished quote']],
  ['""', []],
  ['a"b', ['a', 'b']],
])('%j is %j', (query, want) => {
  expect(parseQuery(query)).toEqual(want)
})

test.each<[string, boolean]>([
  ['web', true],
  ['WEB-0', true],
  ['http', true],
  ['prod', true],
  ['refused', true],
  ['refused http web', true],
  ['"connection refused"', true],
  ['"refused connection"', false],
  ['web nothing', false],
  ['(.*)', false],
  ['503)', true],
])('%j', (query, want) => {
  const row = new Row('production\0web-001\0http', (s) => s)
  row.output = 'Connection Refused (503)'
  expect(compileQuery(query)?.(row)).toBe(want)
})

test('no words match everything', () => {
  expect(compileQuery(' ')).toBeUndefined()
})

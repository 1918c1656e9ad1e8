import { expect, test } from 'vitest'
import { kinds, pathOf, unwrapDefinition, warningsOf, wrap } from './definitions'

test('paths', () => {
  expect(pathOf(kinds.checks, 'default', 'a/b')).toBe('/api/core/v2/namespaces/default/checks/a%2Fb')
  expect(pathOf(kinds.rotas, '-')).toBe('/api/lapwing/v1/rotas')
  expect(pathOf(kinds.clusterroles, 'default', 'admin')).toBe('/api/core/v2/clusterroles/admin')
})

test('a definition as in files, and back', () => {
  const check = { metadata: { name: 'disk', namespace: 'default' }, interval: 60 }
  const wrapped = wrap(kinds.checks, check)
  expect(wrapped).toEqual({ type: 'CheckConfig', api_version: 'core/v2', metadata: check.metadata, spec: { interval: 60 } })
  expect(unwrapDefinition(wrapped)).toEqual(check)
})

test('warnings', () => {
  expect(warningsOf(null)).toEqual([])
  expect(warningsOf('299 - "handler \\"x\\" is not defined", 299 lapwing "and more"')).toEqual(['handler "x" is not defined', 'and more'])
})

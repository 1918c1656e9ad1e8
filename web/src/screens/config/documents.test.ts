import { expect, test } from 'vitest'
import { kinds } from '../../api/definitions'
import { merged, rank, read } from './documents'

const check = 'type: CheckConfig\napi_version: core/v2\nmetadata:\n  name: disk\nspec:\n  interval: 60\n'

test('many documents, in YAML and JSON', () => {
  const docs = read(
    `---\n${check}---\n{"type":"Role","api_version":"core/v2","metadata":{"name":"r","namespace":"b"},"spec":{"rules":[]}}\n---\n`,
    'a',
  )
  expect(docs).toEqual([
    { place: 1, kind: kinds.checks, definition: { metadata: { name: 'disk', namespace: 'a' }, interval: 60 } },
    { place: 2, kind: kinds.roles, definition: { metadata: { name: 'r', namespace: 'b' }, rules: [] } },
  ])
})

test('a list, and kinds of the whole cluster', () => {
  const docs = read('[{"type":"ClusterRole","api_version":"core/v2","metadata":{"name":"x"},"spec":{}}]', 'a')
  expect(docs).toEqual([{ place: 1, kind: kinds.clusterroles, definition: { metadata: { name: 'x' } } }])
})

test.each([
  ['no name', 'type: CheckConfig\nspec: {}', 'no type or no metadata.name'],
  ['not an object', 'just words', 'no type or no metadata.name'],
  ['an unknown kind', 'type: Tune\nmetadata: {name: a}', 'the type Tune'],
  ['another group', 'type: CheckConfig\napi_version: other/v1\nmetadata: {name: a}', 'the type CheckConfig'],
  ['not YAML', 'a: [', ''],
])('%s', (_, text, why) => {
  const [doc] = read(text, 'a')
  expect(doc && 'problem' in doc && doc.problem).toContain(why)
})

test('nothing', () => {
  expect(read('', 'a')).toEqual([])
  expect(read('---\n---\n', 'a')).toEqual([])
})

test('what others name comes first', () => {
  const sorted = [kinds.checks, kinds.rolebindings, kinds.handlers, kinds.filters, kinds.roles].sort((a, b) => rank(a) - rank(b))
  expect(sorted.map(({ plural }) => plural)).toEqual(['filters', 'roles', 'handlers', 'checks', 'rolebindings'])
})

test('defaults do not count as changes', () => {
  const stored = {
    metadata: { name: 'a', namespace: 'b', created_by: 'ann' },
    interval: 60,
    ttl: 0,
    handlers: null,
    command: 'x',
    stdin: true,
  }
  expect(merged(stored, { metadata: { name: 'a', namespace: 'b' }, interval: 30, command: 'x' })).toEqual({
    metadata: { name: 'a', namespace: 'b', created_by: 'ann' },
    interval: 30,
    ttl: 0,
    handlers: null,
    command: 'x',
  })
})

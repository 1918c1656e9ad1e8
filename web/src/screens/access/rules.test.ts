import { expect, test } from 'vitest'
import { kinds } from '../../api/definitions'
import type { Role, RoleBinding } from '../../api/types'
import { bindingsOf, fresh, givenBy, givingWords, has, rowsOf, ruleWords } from './rules'

const binding = (name: string, namespace: string | undefined, role: string, subjects: [string, string][]): RoleBinding =>
  ({
    metadata: { name, ...(namespace ? { namespace } : {}) },
    role_ref: { type: namespace ? 'Role' : 'ClusterRole', name: role },
    subjects: subjects.map(([type, name]) => ({ type, name })),
  }) as RoleBinding

const bindings = [
  ...rowsOf(kinds.clusterrolebindings, [binding('admins', undefined, 'admin', [['Group', 'admins']])]),
  ...rowsOf(kinds.rolebindings, [binding('ann', 'a', 'read', [['User', 'ann']]), binding('other', 'b', 'read', [['User', 'admins']])]),
]

test.each([
  [{ verbs: ['*'], resources: ['*'] }, 'everything on everything'],
  [{ verbs: ['get', 'list'], resources: ['checks'], resource_names: ['a', 'b'] }, 'get, list on checks, only a, b'],
  [{ verbs: ['get'], resources: ['events'], label_selector: 'team == red' }, 'get on events, only where team == red'],
])('%j', (rule, want) => {
  expect(ruleWords(rule)).toBe(want)
})

test('who is bound', () => {
  expect(bindingsOf(bindings, 'ann', ['admins']).map(({ name }) => name)).toEqual(['admins', 'ann'])
  expect(bindingsOf(bindings, 'admins', [])).toHaveLength(1)
  expect(bindings.map(givingWords)[1]).toBe('Role read in a, by RoleBinding ann')
})

test('who has a role', () => {
  const [role] = rowsOf(kinds.roles, [{ metadata: { name: 'read', namespace: 'a' } } as Role])
  expect(role && givenBy(bindings, role).map(({ name }) => name)).toEqual(['ann'])
})

test('new ones', () => {
  expect(fresh('roles', undefined).kind).toBe(kinds.clusterroles)
  expect(fresh('bindings', 'a')).toMatchObject({
    kind: kinds.rolebindings,
    definition: { metadata: { namespace: 'a' }, role_ref: { type: 'Role' } },
  })
})

test('words', () => {
  expect(has('', 'a')).toBe(true)
  expect(has('ann RED', 'ann', 'team-red')).toBe(true)
  expect(has('bob', 'ann', undefined)).toBe(false)
})

import type { Definition, Kind } from '../../api/definitions'
import { kinds } from '../../api/definitions'
import type { Role, RoleBinding } from '../../api/types'
import { accessText as t } from '../../text/access'

/** A role or a binding, of the whole cluster or of a namespace. */
export interface Row<T> {
  key: string
  kind: Kind
  namespace: string
  name: string
  one: T
}

export function rowsOf<T extends Pick<Role, 'metadata'>>(kind: Kind, list: readonly T[] | undefined): Row<T>[] {
  return (list ?? []).map((one) => {
    const { name = '', namespace = '' } = one.metadata ?? {}
    return { key: `${kind.type}/${namespace}/${name}`, kind, namespace, name, one }
  })
}

interface Rule {
  verbs?: readonly string[] | null
  resources?: readonly string[] | null
  resource_names?: readonly string[] | null
  label_selector?: string | undefined
}

const words = (list: readonly string[] | null | undefined): string =>
  (list ?? []).includes('*') ? t.all : (list ?? []).map((word) => (word === 'localselfuser' ? t.self : word)).join(', ')

/** A rule in words. */
export function ruleWords({ verbs, resources, resource_names, label_selector }: Rule): string {
  return [
    t.rule(words(verbs), words(resources)),
    (resource_names ?? []).length > 0 && t.only((resource_names ?? []).join(', ')),
    label_selector && t.labelled(label_selector),
  ]
    .filter(Boolean)
    .join(', ')
}

export const subjectsOf = ({ subjects }: RoleBinding): string[] => (subjects ?? []).map(({ type = '', name = '' }) => t.subject(type, name))

/** The bindings that name a user or one of the groups. */
export function bindingsOf(bindings: readonly Row<RoleBinding>[], user: string, groups: readonly string[]): Row<RoleBinding>[] {
  return bindings.filter(({ one }) =>
    (one.subjects ?? []).some(({ type, name = '' }) => (type === 'User' && name === user) || (type === 'Group' && groups.includes(name))),
  )
}

/** The bindings that give a role. A role of a namespace is only for bindings of the same. */
export function givenBy(bindings: readonly Row<RoleBinding>[], role: Row<Role>): Row<RoleBinding>[] {
  return bindings.filter(
    ({ one, namespace }) =>
      one.role_ref?.type === role.kind.type && one.role_ref.name === role.name && (role.namespace === '' || role.namespace === namespace),
  )
}

export const givingWords = ({ kind, name, namespace, one }: Row<RoleBinding>): string =>
  t.giving(`${kind.type} ${name}`, `${one.role_ref?.type ?? ''} ${one.role_ref?.name ?? ''}`, namespace)

/** What a new one begins with. */
export function fresh(what: 'roles' | 'bindings', namespace: string | undefined): { kind: Kind; definition: Definition } {
  const metadata = { name: '', ...(namespace === undefined ? {} : { namespace }) }
  if (what === 'roles') {
    const definition = { metadata, rules: [{ verbs: ['get', 'list'], resources: ['events', 'entities', 'checks'], resource_names: [] }] }
    return { kind: namespace === undefined ? kinds.clusterroles : kinds.roles, definition }
  }
  const definition = {
    metadata,
    role_ref: { type: namespace === undefined ? 'ClusterRole' : 'Role', name: '' },
    subjects: [{ type: 'Group', name: '' }],
  }
  return { kind: namespace === undefined ? kinds.clusterrolebindings : kinds.rolebindings, definition }
}

/** Whether all words are in one of the texts. */
export function has(q: string, ...texts: (string | undefined)[]): boolean {
  const whole = texts.join('\n').toLowerCase()
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => whole.includes(word))
}

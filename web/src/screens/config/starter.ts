import type { Definition, Kind } from '../../api/definitions'

/** The fields that a new definition begins with, so that few have to be looked up. */
const fields: Record<string, Record<string, unknown>> = {
  checks: { command: '', subscriptions: [''], interval: 60, publish: true, handlers: [] },
  handlers: { type: 'pipe', command: '', filters: ['is_incident', 'not_silenced'] },
  filters: { action: 'allow', expressions: ['event.check.occurrences == 1'] },
  mutators: { type: 'pipe', command: '' },
  hooks: { command: '', timeout: 10 },
  assets: { url: '', sha512: '' },
  pipelines: {
    workflows: [
      {
        name: 'notify',
        filters: [
          { name: 'is_incident', type: 'EventFilter', api_version: 'core/v2' },
          { name: 'not_silenced', type: 'EventFilter', api_version: 'core/v2' },
        ],
        handler: { name: '', type: 'Handler', api_version: 'core/v2' },
      },
    ],
  },
  roles: { rules: [{ verbs: ['get', 'list'], resources: ['events'], resource_names: [] }] },
  clusterroles: { rules: [{ verbs: ['get', 'list'], resources: ['events'], resource_names: [] }] },
  rolebindings: { role_ref: { type: 'Role', name: '' }, subjects: [{ type: 'Group', name: '' }] },
  clusterrolebindings: { role_ref: { type: 'ClusterRole', name: '' }, subjects: [{ type: 'Group', name: '' }] },
  entities: { entity_class: 'proxy', subscriptions: [] },
}

/** A new definition of a kind. */
export function starter(kind: Kind, namespace: string): Definition {
  return { ...fields[kind.plural], metadata: kind.namespaced ? { name: '', namespace } : { name: '' } }
}

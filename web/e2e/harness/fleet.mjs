/** Hosts with checks of which some fail, as the tests of whole screens want them. */
export async function fleet(backend) {
  const hosts = { 'web-1': 'web', 'web-2': 'web', 'db-1': 'db', 'cache-1': 'cache' }
  await definitions(backend)
  const alerts = { pipelines: [{ type: 'Pipeline', api_version: 'core/v2', name: 'alerts' }] }
  await Promise.all([
    backend.check('disk', { handlers: ['team'] }),
    backend.check('load'),
    backend.check('http', { subscriptions: ['web'], ...alerts }),
    backend.check('replication', { subscriptions: ['db'], handlers: ['team'] }),
  ])
  backend.break('web-1', 'http', 2, 'HTTP CRITICAL: connect to 10.0.0.11 port 443: Connection refused')
  backend.break('web-2', 'load', 1, 'LOAD WARNING: 12.41, 11.02, 9.87 (warns at 10)')
  backend.break('db-1', 'replication', 2, 'POSTGRES CRITICAL: replay lag 184 s on standby db-1')
  backend.break('cache-1', 'disk', 3, 'DISK UNKNOWN: /var: no such file system')
  await Promise.all(Object.entries(hosts).map(([name, role]) => backend.agent(name, { subscriptions: ['linux', role], labels: { role } })))
  await Promise.all([
    backend.status('web-1', 'http', 2),
    backend.status('web-2', 'load', 1),
    backend.status('db-1', 'replication', 2),
    backend.status('cache-1', 'disk', 3),
    ...Object.keys(hosts).flatMap((host) =>
      ['disk', 'load']
        .filter((check) => `${host}/${check}` !== 'web-2/load' && `${host}/${check}` !== 'cache-1/disk')
        .map((check) => backend.status(host, check, 0)),
    ),
  ])
}

/** Who is told, and what is silenced. */
async function definitions(backend) {
  const namespace = '/namespaces/default'
  const core = (plural, name, spec) =>
    backend.call('POST', `/api/core/v2${namespace}/${plural}`, { metadata: { name, namespace: 'default' }, ...spec })
  const own = (plural, name, spec) =>
    backend.call('POST', `/api/lapwing/v1${namespace}/${plural}`, { metadata: { name, namespace: 'default' }, ...spec })
  await core('handlers', 'team', { type: 'pipe', command: 'cat >/dev/null', filters: ['is_incident', 'not_silenced'] })
  await core('filters', 'often', { action: 'allow', expressions: ['event.check.occurrences >= 1000'] })
  await core('pipelines', 'alerts', {
    workflows: [
      {
        name: 'page',
        filters: [
          { type: 'EventFilter', api_version: 'core/v2', name: 'is_incident' },
          { type: 'EventFilter', api_version: 'core/v2', name: 'often' },
        ],
        handler: { type: 'Handler', api_version: 'core/v2', name: 'team' },
      },
    ],
  })
  await own('contacts', 'ann', { full_name: 'Ann Example', email: 'ann@example.org', handlers: ['team'] })
  await own('contacts', 'ben', { full_name: 'Ben Example', email: 'ben@example.org', handlers: ['team'] })
  await own('rotas', 'operators', { contacts: ['ann', 'ben'], start: '2026-01-05T09:00', shift: 604800 })
  await own('aggregates', 'shop', { label_selector: 'role == web', critical: { percent: 60 }, interval: 10 })
  await core('silenced', 'new-disks', {
    subscription: 'entity:cache-1',
    check: 'load',
    reason: 'new disks on Monday',
    expire: 86400,
  })
}

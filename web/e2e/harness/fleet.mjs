/** Hosts with checks of which some fail, as the tests of whole screens want them. */
export async function fleet(backend) {
  const hosts = { 'web-1': 'web', 'web-2': 'web', 'db-1': 'db', 'cache-1': 'cache' }
  await Promise.all([
    backend.check('disk'),
    backend.check('load'),
    backend.check('http', { subscriptions: ['web'] }),
    backend.check('replication', { subscriptions: ['db'] }),
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
    ...Object.keys(hosts).flatMap((host) => ['disk', 'load'].filter((check) => `${host}/${check}` !== 'web-2/load' && `${host}/${check}` !== 'cache-1/disk')
      .map((check) => backend.status(host, check, 0))),
  ])
}

// A make-believe fleet: the same seed gives the same hosts and results.

const checks = [
  ['keepalive', 20, 'Keepalive last sent from {host} at {time}', 'No keepalive sent from {host} for {n} seconds (>= 120)'],
  ['disk', 60, 'DISK OK - /: {n}% used, /var: 41% used', 'DISK CRITICAL - /var: 9{d}% used (threshold 90%)'],
  ['http', 30, 'HTTP OK: 200 OK - {n} bytes in 0.0{d}2 second response time', 'HTTP CRITICAL: connect to {host} port 443: Connection refused'],
  ['load', 60, 'LOAD OK - 0.{d}2, 0.{d}8, 0.51', 'LOAD WARNING - {d}2.41, 11.02, 9.87 (per core 3.{d})'],
  ['memory', 60, 'MEM OK - {n} MiB available', 'MEM WARNING - {d}4 MiB available, swap in use'],
  ['ntp', 300, 'NTP OK: Offset 0.000{d}12 secs', 'NTP UNKNOWN: no peers reachable'],
  ['postgres-replication', 30, 'POSTGRES OK: replay lag 0.{d} s', 'POSTGRES CRITICAL: replay lag {n} s on standby {host}'],
  ['certificate', 3600, 'CERT OK - {n} days left', 'CERT WARNING - expires in {d} days'],
  ['systemd-units', 60, 'UNITS OK: all running', 'UNITS CRITICAL: nginx.service failed (exit code 1)'],
  ['raid', 300, 'RAID OK: md0 [UU], md1 [UU]', 'RAID CRITICAL: md1 degraded [U_], rebuild {n}%'],
]
const failing = { keepalive: 1, disk: 2, http: 2, load: 1, memory: 1, ntp: 3, certificate: 1 }
const roles = ['web', 'db', 'cache', 'queue', 'edge', 'build']
const namespaces = ['default', 'production', 'staging']

export function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

/** Yields `count` events, ordered by namespace, entity and check, with history up to `now` (Unix seconds). */
export function* fleet(count, now, seed = 7) {
  const next = random(seed)
  const hosts = Math.ceil(count / checks.length)
  const names = Array.from({ length: hosts }, (_, i) => {
    const namespace = namespaces[i % 10 === 0 ? 2 : i % 3 === 0 ? 0 : 1]
    return [namespace, `${roles[i % roles.length]}-${String(Math.floor(i / roles.length) + 1).padStart(3, '0')}`, i]
  }).sort((a, b) => (a[0] + '\0' + a[1] < b[0] + '\0' + b[1] ? -1 : 1))
  let made = 0
  for (const [namespace, host, i] of names) {
    for (const [name] of [...checks].sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
      if (made++ === count) return
      const bad = next() < 0.045
      yield build({ namespace, host, name, now, bad, silenced: bad && next() < 0.15, next, i })
    }
  }
}

function build({ namespace, host, name, now, bad, silenced, next, i }) {
  const [, interval] = checks.find((c) => c[0] === name)
  const executed = now - Math.floor(next() * Math.min(interval, 90))
  const run = bad ? 1 + Math.floor(next() * 15) : 21
  const status = bad ? (failing[name] ?? 2) : 0
  const history = Array.from({ length: 21 }, (_, k) => ({
    status: k >= 21 - run ? status : next() < 0.06 ? (failing[name] ?? 2) : 0,
    executed: executed - (20 - k) * interval,
  }))
  let occurrences = 1
  while (occurrences < 21 && history[20 - occurrences].status === status) occurrences++
  const lastOK = [...history].reverse().find((h) => h.status === 0)
  return {
    timestamp: executed,
    entity: {
      entity_class: 'agent',
      system: {
        hostname: host,
        os: 'linux',
        platform: 'debian',
        platform_family: 'debian',
        platform_version: '12.8',
        arch: 'amd64',
        network: {
          interfaces: [{ name: 'eth0', mac: '52:54:00:12:34:56', addresses: [`10.0.${(i >> 8) & 255}.${i & 255}/16`] }],
        },
        libc_type: 'glibc',
        vm_system: 'kvm',
        vm_role: 'guest',
        cloud_provider: '',
        processes: null,
      },
      subscriptions: ['linux', host.split('-')[0], `entity:${host}`],
      last_seen: now - 3,
      deregister: false,
      deregistration: {},
      metadata: {
        name: host,
        namespace,
        labels: { region: ['eu-west-1', 'us-east-1'][i % 2], rack: `rack-${(i % 24) + 1}`, team: 'platform' },
        annotations: { runbook: `https://wiki.example.com/runbooks/${name}` },
      },
      sensu_agent_version: '6.12.0',
    },
    check: {
      command: name === 'keepalive' ? '' : `check-${name} -w 80 -c 90`,
      handlers: ['slack'],
      interval,
      ttl: 0,
      timeout: 30,
      subscriptions: name === 'keepalive' ? [] : ['linux'],
      duration: Math.round(next() * 900) / 1000,
      executed,
      issued: executed,
      history,
      output: output(name, host, bad, now, next),
      state: status === 0 ? 'passing' : 'failing',
      status,
      total_state_change: Math.floor(next() * 20),
      last_ok: lastOK?.executed ?? 0,
      occurrences: occurrences === 21 ? 21 + Math.floor(next() * 4000) : occurrences,
      occurrences_watermark: occurrences,
      metadata: { name, namespace },
      is_silenced: silenced,
      ...(silenced ? { silenced: [`entity:${host}:*`] } : {}),
    },
    id: uuid(next),
    metadata: { namespace },
    pipelines: null,
    sequence: 0,
  }
}

export function output(name, host, bad, now, next) {
  const check = checks.find((c) => c[0] === name)
  if (!check) return bad ? `${name} failed\n` : `${name} OK\n`
  const first = (bad ? check[3] : check[2])
    .replaceAll('{host}', host)
    .replaceAll('{time}', new Date(now * 1000).toISOString().replace('T', ' ').slice(0, 19) + ' +0000 UTC')
    .replaceAll('{n}', () => String(10 + Math.floor(next() * 80)))
    .replaceAll('{d}', () => String(1 + Math.floor(next() * 8)))
  if (name === 'keepalive') return first
  const more = bad
    ? `\n  at ${new Date(now * 1000).toISOString()} from ${host}\n  last good result was kept; see the runbook before restarting anything\n`
    : '\n'
  return first + more
}

function uuid(next) {
  const hex = Array.from({ length: 32 }, () => Math.floor(next() * 16).toString(16)).join('')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`
}

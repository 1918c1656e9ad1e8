import { text } from './index'

export const clusterText = {
  title: 'Cluster',
  problems: 'Problems',
  well: (members: number) =>
    members === 1 ? 'One backend runs, and nothing is wrong with it.' : `All ${members} backends run, and nothing is wrong.`,
  found: (n: number) => (n === 1 ? '1 problem' : `${n} problems`),
  summary: (up: number, size: number, sessions: number) =>
    `${up} of ${size === 1 ? '1 backend' : `${size} backends`} up, ${text.number(sessions)} ${sessions === 1 ? 'agent' : 'agents'} connected`,
  members: 'Backends',
  member: 'Backend',
  here: 'this page is from it',
  state: 'State',
  states: {
    up: 'Ready',
    waiting: 'Reads the log',
    alone: 'Hears no majority',
    draining: 'Draining',
    leaving: 'Stops',
    away: (seconds: number) => `Not heard for ${text.duration(seconds)}`,
  },
  sessions: 'Agents',
  share: (percent: number) => `${percent} %`,
  disk: 'Free disk',
  reserve: (bytes: string) => `Below ${bytes} of free disk the backend takes no events.`,
  lag: 'Behind',
  lagHelp: 'Events of the log that it has not read, and changes of definitions that it has not got',
  lags: (events: number, definitions: number) =>
    events + definitions === 0
      ? 'nothing'
      : [events > 0 && `${text.number(events)} events`, definitions > 0 && `${text.number(definitions)} changes`]
          .filter(Boolean)
          .join(', '),
  clock: 'Clock',
  ahead: (seconds: number) => (Math.abs(seconds) < 0.001 ? 'same' : `${seconds > 0 ? '+' : '−'}${Math.abs(seconds).toFixed(3)} s`),
  version: 'Version',
  started: 'Runs for',
  acts: 'Actions',
  drain: 'Drain',
  undrain: 'End the drain',
  remove: 'Remove',
  drainTitle: (name: string) => `Drain ${name}`,
  drainHelp: (sessions: number, others: number) =>
    others > 0
      ? `${text.number(sessions)} agents leave for ${others === 1 ? 'the other backend' : `${others} other backends`}, a few at a time. ` +
        'The backend takes no agents until the drain ends.'
      : `${text.number(sessions)} ${sessions === 1 ? 'agent is' : 'agents are'} asked to leave, and no other backend is up: they stay without a backend until the drain ends.`,
  over: 'Over how many seconds',
  drained: (name: string) => `${name} sends its agents away.`,
  undrained: (name: string) => `${name} takes agents again.`,
  left: (n: number) => `${text.number(n)} agents left`,
  undrainHelp: 'The backend takes agents again. Agents that left stay where they are.',
  removeTitle: (name: string) => `Remove ${name}`,
  removeHelp:
    'Only for a backend that never comes back, for example because its disk is lost. The other backends no longer wait for it, and its ' +
    'copies are made elsewhere. This cannot be undone.',
  removed: (name: string) => `${name} is removed.`,
  streams: 'Copies of the data',
  stream: 'Data',
  leader: 'Leader',
  none: 'none',
  copies: 'Copies',
  current: (n: number, of: number) => `${n} of ${of} current`,
  replica: (member: string, offline: boolean, lag: number) =>
    `${member}: ${offline ? 'not connected' : lag > 0 ? `${text.number(lag)} behind` : 'current'}`,
  owner: 'Owner',
  ownNATS: 'Each backend has a NATS server of its own.',
  theirNATS: (names: string) => `The log is kept by ${names}.`,
  leading: (name: string) => `${name} decides who keeps which data.`,
  noLeader: (why: string) => `Nobody decides who keeps which data${why === '' ? '.' : `: ${why}`}`,
  postgres: 'PostgreSQL',
  noPostgres: 'No backend writes to PostgreSQL. With it, events and their history are kept for as long as you want.',
  pg: {
    server: 'Server',
    state: 'State',
    connected: 'Connected',
    not: 'Not connected',
    since: 'since',
    lag: 'Behind',
    journal: 'Journal',
    gone: 'Gone; others write for it',
    gaps: (n: number) => `${n} ranges were skipped`,
  },
  log: 'What the backends log',
  level: 'Level',
  component: 'Part',
  allParts: 'All parts',
  change: 'Change',
  levelTitle: (name: string) => `Log level of ${name}`,
  levelHelp: 'The level goes back by itself after that time.',
  length: 'For how long',
  lengths: [
    { value: '300', label: '5 minutes' },
    { value: '900', label: '15 minutes' },
    { value: '3600', label: '1 hour' },
    { value: '86400', label: '1 day' },
  ],
  changed: (level: string, component: string) => `${component === '' ? 'All parts' : component}: ${level}`,
  until: 'until',
  reset: 'End all changes',
  levelSet: (name: string) => `The log level of ${name} is changed.`,
  levelReset: (name: string) => `${name} logs as configured again.`,
  backup: 'Backup',
  backupHelp:
    'A backup has the definitions, the users and the state of one backend, while it runs. It needs a user or an API key with all rights. ' +
    'Make it with the command line, which checks it:',
  backupCommand: (url: string) => `lapwing backup /var/backups/lapwing/ --api-url ${url} --api-key KEY`,
  size: bytes,
}

function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let i = 0
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024
    i++
  }
  return `${n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[i] ?? ''}`
}

/** All words of the page, so that another language is one more file like this. */

const number = new Intl.NumberFormat('en')
const tenths = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 })
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 })

export function count(n: number, one: string, many: string): string {
  return `${number.format(n)} ${n === 1 ? one : many}`
}

function statusWord(status: number): string {
  return status === 0 ? 'OK' : status === 1 ? 'Warning' : status === 2 ? 'Critical' : 'Unknown'
}

function needs(verb: string, resource: string): string {
  return `You need the verb “${verb}” on “${resource}” for this.`
}

export const text = {
  name: 'lapwing',
  number: (n: number) => number.format(n),
  compact: (n: number) => (n < 10_000 ? number.format(n) : compact.format(n)),
  status: statusWord,
  group: { critical: 'Critical', warning: 'Warning', unknown: 'Unknown', silenced: 'Silenced', ok: 'OK' },
  groupHelp: {
    critical: 'Critical and not silenced',
    warning: 'Warning and not silenced',
    unknown: 'Any other status than 0, 1 and 2, and not silenced',
    silenced: 'Not OK, but silenced',
    ok: 'OK',
  },

  // Sign-in
  signInTitle: 'Sign in to lapwing',
  tagline: 'Watches over every nest at once.',
  username: 'Username',
  password: 'Password',
  signIn: 'Sign in',
  signInAt: (title: string) => `Sign in with ${title}`,
  signOut: 'Sign out',
  sessionEnded: 'You have been signed out. Sign in again to continue where you were.',
  wrongCredentials: 'Wrong username or password.',
  unreachable: 'The backend cannot be reached. Is it running?',
  serverFailed: (what: string) => `Sign-in failed: ${what}.`,
  asksAgain: (reason: string) => `${reason}. The page asks again every few seconds.`,
  wallLink: {
    title: 'Show a wall',
    help: 'This link has an API key. It shows what the key’s user may see, on this browser, until the key is deleted. Go on only if you know who made the link.',
    show: 'Show the wall',
    signIn: 'Sign in instead',
    wrong: 'The key of this link is not known, or was deleted.',
  },

  // Frame
  namespace: 'Namespace',
  allNamespaces: 'All namespaces',
  keys: 'Keyboard shortcuts',
  signedInAs: (user: string) => `Signed in as ${user}`,
  skip: 'Skip to the content',
  noScreen: 'There is no such screen',
  noScreenHelp: 'The address may be misspelt. Choose a screen from the navigation.',
  nav: {
    title: 'Screens',
    toggle: 'Show or hide the names of the screens',
    watch: 'Watch',
    define: 'Define',
    run: 'Run',
    more: 'More',
    now: 'Now',
    events: 'Events',
    entities: 'Entities',
    silences: 'Silences',
    wall: 'Wall',
    oncall: 'On call',
    services: 'Services',
    metrics: 'Metrics',
    checks: 'Checks',
    pipelines: 'Pipelines',
    queues: 'Queues',
    config: 'Config',
    reports: 'Reports',
    cluster: 'Cluster',
    audit: 'Audit',
    access: 'Access',
  },
  palette: {
    button: 'Go to…',
    screens: 'Screens',
    definitions: 'Definitions',
    kinds: {
      checks: 'Check',
      handlers: 'Handler',
      pipelines: 'Pipeline',
      filters: 'Filter',
      mutators: 'Mutator',
      hooks: 'Hook',
      assets: 'Asset',
    } as Record<string, string>,
    placeholder: 'Screen, entity, check, handler…',
    nothing: 'Nothing found',
  },
  user: {
    menu: 'Settings and sign-out',
    theme: 'Theme',
    themes: { light: 'Light', dark: 'Dark', auto: 'As the system' },
    contrast: 'Contrast',
    contrasts: { normal: 'Normal', high: 'High' },
    density: 'Rows',
    densities: { comfortable: 'Comfortable', compact: 'Compact' },
    time: 'Times',
    times: { local: 'Local time', utc: 'UTC' },
  },

  // Badge
  live: 'Live',
  liveHelp: 'Changes show here as soon as the backend has them.',
  connecting: 'Connecting…',
  loading: (n: number) => (n === 0 ? 'Loading…' : `Loading ${number.format(n)}…`),
  behind: (seconds: number) => `${duration(seconds)} behind`,
  cannotConnect: 'Cannot connect',
  retrying: (reason: string) => `${sentence(reason)}. It will be tried again.`,
  nextTry: (reason: string, seconds: number) => `${sentence(reason)}. Next try in ${Math.max(1, seconds)} s.`,
  nothingHeard: (time: string) => `nothing heard for ${time}`,
  noAccess: 'No access',
  unreadable: 'This search cannot be read',
  missing: 'Not found',
  loadFailed: (what: string) => `This could not be loaded: ${what}.`,
  cancel: 'Cancel',
  save: 'Save',
  delete: 'Delete',
  edit: 'Edit',
  needs,
  noAccessHelp: (verb: string, resource: string) => `${needs(verb, resource)} Choose another namespace, or ask for a role with it.`,
  copyYAML: 'Copy YAML',
  editor: {
    keys: 'Tab indents. Escape, then Tab, leaves the text.',
    changed: (name: string) => `Somebody has changed ${name} since you opened it. Close this, and begin with what is there now.`,
    make: (type: string) => `New ${type}`,
    change: (name: string) => `Edit ${name}`,
    mistakes: (n: number) => count(n, 'mistake', 'mistakes'),
    warnings: 'The server warns',
    asking: 'Asking the server…',
    fine: 'The server would take it.',
    same: 'Nothing differs.',
    diff: 'What changes',
    fields: 'Fields',
    saved: (name: string) => `${name} is saved.`,
    renamed: (name: string) => `This makes another one with the new name. ${name} stays as it is.`,
  },
  weeks: {
    earlier: (days: number) => `${days} days earlier`,
    later: (days: number) => `${days} days later`,
    today: 'Today',
    range: (from: string, to: string) => `${from} to ${to}`,
  },
  table: { pick: (name: string) => `Select ${name}`, pickAll: 'Select all' },

  // Summary and toolbar
  allClear: 'All clear',
  search: 'Search',
  searchHint: 'Entity or check, or output =~ "timeout"',
  clearSearch: 'Clear the search',
  shown: (shown: number, total: number) =>
    shown === total ? count(total, 'event', 'events') : `${number.format(shown)} of ${count(total, 'event', 'events')}`,
  pending: (n: number) => `${count(n, 'row', 'rows')} to update`,
  pendingHelp: 'Rows wait to appear, leave or move so that the list does not jump while you read it.',

  // List
  events: 'Events',
  silenced: 'Silenced',
  gone: 'Not here',
  nothingMatches: 'Nothing matches',
  empty: 'Nothing is watched here yet',
  emptyHelp: 'Start an agent on any host. Its keepalive appears here by itself within seconds.',
  emptyStock: 'A stock sensu-agent 6 connects with the same address.',
  first: {
    title: 'An agent is connected',
    help: 'Nothing but its keepalives is watched yet. A first check, on all agents with the subscription linux:',
    make: 'Make this check',
    made: (name: string) => `The check ${name} runs every 10 seconds.`,
    other: 'Make another one',
  },
  copy: 'Copy',
  copied: 'Copied',
  copyFailed: 'Not copied',

  list: {
    which: 'Which events',
    firstGroups: (shown: number, all: number) => `The ${number.format(shown)} groups with the worst events, of ${number.format(all)}.`,
    statuses: [
      { value: 'all', label: 'All' },
      { value: 'failing', label: 'Failing' },
      { value: 'open', label: 'Open' },
      { value: 'silenced', label: 'Silenced' },
    ],
    sort: 'Order',
    sorts: [
      { value: 'severity', label: 'Worst first' },
      { value: 'since', label: 'Newest change first' },
      { value: '-since', label: 'Oldest change first' },
      { value: 'entity', label: 'By entity' },
      { value: 'check', label: 'By check' },
    ],
    group: 'Group by',
    groups: [
      { value: '', label: 'No groups' },
      { value: 'entity', label: 'By entity' },
      { value: 'check', label: 'By check' },
      { value: 'namespace', label: 'By namespace' },
    ],
    byLabel: (key: string) => `By label ${key}`,
    failed: 'The list ended',
    value: 'Group',
    without: '(without)',
    nothingHelp: 'No event here matches the search. Remove a part of it, or show all events.',
    removePart: (part: string) => `Remove ${part} from the search`,
    acknowledgedBy: (user: string) => `Acknowledged by ${user}`,
    columns: { status: 'Status', entity: 'Entity', check: 'Check', output: 'Output', history: 'History', since: 'For', owner: 'Owner' },
  },

  now: {
    title: 'Now',
    open: (n: number) => (n === 1 ? 'open incident' : 'open incidents'),
    newest: 'Newest incidents',
    all: (n: number) => `All ${count(n, 'open incident', 'open incidents')}`,
    byCheck: 'By check',
    byEntity: 'By entity',
    clearHelp: 'No check fails that is neither silenced nor acknowledged.',
    agents: (connected: number, late: number) =>
      count(connected, 'agent', 'agents') + ' connected' + (late > 0 ? `, ${number.format(late)} late or gone` : ''),
    storm: (n: number, of: number, by: 'check' | 'entity', name: string) =>
      `${number.format(n)} of ${count(of, 'open incident', 'open incidents')} are of the ${by} ${name}.`,
    show: 'Show them',
    untold: (n: number, least: boolean) => `Nobody was told of ${least ? 'at least ' : ''}${number.format(n)}`,
    rate: (perSecond: number | undefined) =>
      `${perSecond === undefined ? '–' : perSecond < 10 ? tenths.format(perSecond) : number.format(Math.round(perSecond))} events/s`,
    rateHelp: 'Results and keepalives that the backends receive, in the last half minute',
    onCall: 'On call now',
    noOne: 'No one',
    until: (time: string) => `until ${time}`,
  },
  told: {
    label: 'Who was told',
    column: 'Told',
    title: {
      yes: 'Somebody was told',
      waiting: 'Nobody was told yet',
      no: 'Nobody was told',
      nothing: 'Nothing to tell',
      unknown: 'It is not known whether somebody was told',
    },
    words: { waiting: 'waits', no: 'nobody', nothing: '–', unknown: 'not known', yes: 'yes' },
    by: (handlers: readonly string[], at: string) =>
      [handlers.length === 0 ? 'yes' : handlers.join(', '), at].filter((part) => part !== '').join(' '),
    why: 'Why?',
    noHandler: 'No handler',
    silenced: 'Silenced',
    more: (n: number) => `and ${count(n, 'other route', 'other routes')}`,
  },
  act: {
    undo: 'Undo',
    undone: 'Undone.',
    acknowledge: 'Acknowledge',
    acknowledged: (entity: string, check: string) => `Acknowledged ${check} on ${entity}.`,
    comment: 'Comment',
    endsAfter: 'Ends',
    whenResolved: 'when the check passes',
    never: 'never by itself',
    silence: 'Silence',
    silenced: (name: string) => `Silence ${name} is made.`,
    reason: 'Reason',
    what: 'What is silenced',
    thisEvent: 'This event',
    thisEntity: 'The entity',
    thisCheck: 'The check, on all entities',
    looking: 'Looking at what it hits…',
    hits: (events: number, failing: number) =>
      `Hits ${count(events, 'event', 'events')} now${failing > 0 ? `, ${number.format(failing)} of them failing` : ''}.`,
    resolve: 'Resolve',
    notResolved: 'Nothing was resolved: the event is not there any more, or you may not change it.',
    resolved: (entity: string, check: string) => `Resolved ${check} on ${entity}.`,
    resolveHelp: 'Sets the status to OK by hand; handlers get the resolution. The next result of the check counts again.',
    run: 'Run again',
    asked: (entity: string, check: string) => `Asked ${entity} to run ${check}.`,
    lengths: { hour: 'in 1 hour', fourHours: 'in 4 hours', morning: 'tomorrow morning, 08:00', day: 'in 1 day' },
  },
  bulk: {
    title: 'Selected events',
    selected: (n: number) => count(n, 'event', 'events'),
    all: (n: number) => `Select all ${number.format(n)} matching`,
    clear: 'Select none',
    actions: { silence: 'Silence', acknowledge: 'Acknowledge', resolve: 'Resolve', run: 'Run again', delete: 'Delete' },
    help: {
      resolve:
        'Sets the status to OK by hand; handlers get the resolutions. The next results of the checks count again. This cannot be undone.',
      delete: 'Deletes the events with their history. A check that still runs makes its event anew. This cannot be undone.',
      run: 'Asks the agents to run these checks now, once. Agents that are not connected do not get it.',
    },
    needsSearch: 'Search first: a silence needs a condition, or it would silence everything.',
    fewRuns: (most: number) => `Select up to ${most} events one by one for this.`,
    do: (action: 'acknowledge' | 'resolve' | 'delete', n: number) =>
      `${{ acknowledge: 'Acknowledge', resolve: 'Resolve', delete: 'Delete' }[action]} ${count(n, 'event', 'events')}`,
    did: (action: 'acknowledge' | 'resolve' | 'delete' | 'run', n: number) =>
      action === 'run'
        ? `Asked for ${count(n, 'result', 'results')}.`
        : `${{ acknowledge: 'Acknowledged', resolve: 'Resolved', delete: 'Deleted' }[action]} ${count(n, 'event', 'events')}.`,
    would: (n: number, denied: number) =>
      `This would change ${count(n, 'event', 'events')}${denied > 0 ? `; for ${number.format(denied)} you lack the right` : ''}.`,
    progress: 'Progress',
    report: (n: number, denied: number, broken: number) =>
      [`${number.format(n)} done`, denied > 0 && `${number.format(denied)} denied`, broken > 0 && `${number.format(broken)} failed`]
        .filter(Boolean)
        .join(', '),
    notAll: 'Not all could be done',
    silenced: (n: number) => `Silenced ${count(n, 'event', 'events')}.`,
    silenceNames:
      'These entities are silenced by their names. Later ones with the same labels are not: for them, silence a search in Events.',
    silenceHelp: 'One silence for all events that match now or later:',
  },
  saved: {
    title: 'Saved searches',
    none: 'No saved searches yet.',
    save: 'Save this search',
    name: 'Name',
    remove: (name: string) => `Delete ${name}`,
    help: 'Kept in this browser. To share a search, copy the address.',
  },
  timeline: {
    title: 'Timeline',
    summary: (n: number) => (n === 0 ? 'OK all the time' : count(n, 'time', 'times') + ' not OK'),
    told: (n: number | undefined) =>
      n === undefined ? 'notifications are not known' : n === 0 ? 'nobody was told' : count(n, 'notification', 'notifications'),
    nothing: 'Not known',
    missing: 'Missing',
    now: 'now',
    drag: 'Drag over the band or a chart to look closer.',
    silenced: 'Silenced',
    acknowledged: 'Acknowledged',
    by: (what: string, user: string, reason: string) => `${what}${user === '' ? '' : ` by ${user}`}${reason === '' ? '' : `: ${reason}`}`,
    lanes: 'Circles are notifications, diamonds failed ones, squares silences, triangles acknowledgements.',
    happened: 'What happened',
    rows: (n: number) => count(n, 'entry', 'entries'),
    all: (n: number) => `Show all ${number.format(n)}`,
    compareShort: 'Compare',
    compare: 'Compare with the output before',
    compared: 'Output before and after',
    ended: 'The event was deleted',
  },

  // Bands of reports
  band: (word: string, n: number, all: number) => `${word} in ${number.format(n)} of ${number.format(all)} parts`,
  bandPart: (length: string) => `Each part is ${length} long and shows the worst state in it.`,
  uptime: (millionths: number | null) => (millionths === null ? '–' : `${(Math.floor(millionths / 100) / 100).toFixed(2)} %`),

  // Times of plots
  range: {
    label: 'Time',
    lengths: [
      { value: '1h', label: '1 h' },
      { value: '1d', label: '1 d' },
      { value: '7d', label: '7 d' },
      { value: '30d', label: '30 d' },
    ],
    reset: 'Back to the last time until now',
    earlier: 'Earlier',
    later: 'Later',
    closer: 'Closer',
  },

  // Detail
  detail: 'Event',
  close: 'Close',
  previous: 'Previous (k)',
  next: 'Next (j)',
  copyJSON: 'Copy JSON',
  output: 'Output',
  noOutput: 'No output.',
  history: 'History',
  historySummary: (statuses: readonly number[]) => {
    const parts = [0, 1, 2, 3]
      .map((status) => ({ status, n: statuses.filter((s) => Math.min(s, 3) === status).length }))
      .filter((part) => part.n > 0)
      .map((part) => `${part.n} ${statusWord(part.status)}`)
    return `Last ${statuses.length} results: ${parts.join(', ')}`
  },
  since: (status: number, seconds: number, atLeast: boolean) =>
    `${statusWord(status)} for ${atLeast ? 'at least ' : ''}${duration(seconds)}`,
  occurrence: (n: number) => count(n, 'result', 'results') + ' in a row',
  silencedBy: (names: readonly string[]) => (names.length === 0 ? 'Silenced' : `Silenced by ${names.join(', ')}`),
  flapping: 'Flapping',
  times: 'Times',
  check: 'Check',
  entity: 'Entity',
  showEntity: 'Show the entity',
  labels: 'Labels',
  annotations: 'Annotations',
  hooks: 'Hooks',
  json: 'JSON',
  facts: {
    seen: 'Last seen',
    executed: 'Executed',
    issued: 'Issued',
    lastOK: 'Last OK',
    duration: 'Took',
    interval: 'Every',
    cron: 'Cron',
    ttl: 'TTL',
    timeout: 'Timeout',
    command: 'Command',
    handlers: 'Handlers',
    subscriptions: 'Subscriptions',
    flap: 'State change',
    peak: 'Longest run',
    class: 'Class',
    host: 'Host',
    system: 'System',
    agent: 'Agent',
    by: 'Created by',
    id: 'Event ID',
  },
  never: 'never',
  eventMissing: 'This event does not exist (any more).',
  eventFailed: (what: string) => `The event could not be loaded: ${what}.`,
  tryAgain: 'Try again',

  // Keys
  keyHelp: [
    [['j', 'k'], 'Next and previous row; with an open detail, the next and previous one'],
    [['Enter'], 'Open the row'],
    [['Esc'], 'Close, or clear the search'],
    [['x'], 'Select the row'],
    [['Ctrl A'], 'Select all rows on the screen'],
    [['s'], 'Silence'],
    [['a'], 'Acknowledge'],
    [['r'], 'Resolve'],
    [['e'], 'Run again'],
    [['/'], 'Search'],
    [['.'], 'Update the order of the list now'],
    [['Ctrl K'], 'Go to a screen, an event, an entity or a definition'],
    [['?'], 'This list'],
  ] as const,

  // Announcements
  announceLost: 'The connection was lost. What you see is old.',
  announceOpen: (n: number) => count(n, 'open incident', 'open incidents') + '.',
  failedScreen: 'This screen failed',
  reload: 'Load again',

  duration,
  ago: (seconds: number) => (seconds < 1 ? 'now' : `${duration(seconds)} ago`),
  dateTime: (unix: number) => dateTime.format(unix * 1000),
}

const dateTime = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric',
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZoneName: 'short',
})

function sentence(s: string): string {
  return s.charAt(0).toUpperCase() + s.slice(1)
}

/** Two units at most: 45 s, 3 m 20 s, 2 h 5 m, 3 d 4 h. */
function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds))
  const pair = (a: number, unitA: string, b: number, unitB: string) =>
    b === 0 ? `${number.format(a)} ${unitA}` : `${number.format(a)} ${unitA} ${b} ${unitB}`
  if (s < 60) return `${s} s`
  if (s < 600) return pair(Math.floor(s / 60), 'm', s % 60, 's')
  if (s < 3600) return `${Math.floor(s / 60)} m`
  if (s < 86_400) return pair(Math.floor(s / 3600), 'h', Math.floor((s % 3600) / 60), 'm')
  return pair(Math.floor(s / 86_400), 'd', Math.floor((s % 86_400) / 3600), 'h')
}

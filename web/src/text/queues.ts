import { count, text as shared } from '.'

/** The words of the screen of queues. */
export const text = {
  title: 'Queues',
  tabs: { handlers: 'Handlers', letters: 'Dead letters', groups: 'Round robin' },
  which: 'Which queues',
  handlers: {
    columns: {
      handler: 'Handler', namespace: 'Namespace', state: 'State', depth: 'Depth', retrying: 'Retrying', oldest: 'Oldest', next: 'Next turn',
      delivered: 'Last taken', letters: 'Dead letters', error: 'Last error',
    },
    depthHelp: 'Deliveries in memory, on disk and parked until a time',
    none: 'No handlers',
    noneHelp: 'A handler takes incidents to people or programs. Make one on the screen of pipelines, and name it in a check.',
    states: { failing: 'Failing', waiting: 'Waiting', running: 'Running', idle: 'Idle' },
    failing: (time: string) => `Failing ${time}`,
    atLeast: (n: number) => (n === 0 ? '?' : `${shared.number(n)}+`),
    atLeastHelp: 'Only the first dead letters were counted: there are more.',
    due: 'now',
  },
  handler: {
    label: 'Handler',
    counts: 'What waits',
    memory: 'In memory', disk: 'On disk', parked: 'Parked', running: 'Running', shed: 'Given up',
    shedHelp: 'since the backend started, because too many were on disk',
    classes: ({ change, failing, unchanged, metrics }: { change: number; failing: number; unchanged: number; metrics: number }) =>
      ([[change, 'change'], [failing, 'failing'], [unchanged, 'unchanged'], [metrics, 'metrics']] as const)
        .filter(([n]) => n > 0)
        .map(([n, word]) => `${shared.number(n)} ${word}`)
        .join(', '),
    health: 'How it goes',
    failingSince: 'Fails since', failures: 'Failed attempts', died: 'Became dead letters', lastFailed: 'Last failure', lastError: 'Last error',
    lastDelivered: 'Last success',
    noError: 'No attempt has failed since the backend started.',
    waiting: 'First deliveries by their next turn',
    nothing: 'Nothing waits for this handler.',
    fors: {
      attempt: 'next attempt', resolution: 'resolve delay', group: 'its group', escalation: 'next step', worker: 'a free worker',
    } as Record<string, string>,
    attempts: (n: number) => count(n, 'attempt', 'attempts'),
    retry: 'Try now',
    retryHelp: (n: number) =>
      `${count(n, 'delivery', 'deliveries')} had a failed attempt. Those that wait for the next one are tried now, on all backends. ` +
      'Concurrency and rate limit still count. An attempt that fails again counts, and the next wait is longer.',
    retried: (n: number, name: string) => `${count(n, 'delivery', 'deliveries')} of ${name} ${n === 1 ? 'is' : 'are'} tried now.`,
    noRetry: 'No delivery waits for its next attempt.',
    letters: 'Show its dead letters',
    definition: 'Show its definition',
    columns: { event: 'Event', for: 'Waits for', next: 'Next turn', attempts: 'Attempts', error: 'Last error' },
  },
  letters: {
    columns: { state: 'State', check: 'Check', entity: 'Entity', handler: 'Handler', reason: 'Reason', attempts: 'Attempts', last: 'Last attempt' },
    none: 'No dead letters',
    noneHelp: 'A delivery becomes a dead letter when all its attempts have failed. None is kept here.',
    filter: 'Handler',
    all: 'All handlers',
    more: 'Load more',
    shown: (n: number, more: boolean) => (more ? `${shared.number(n)} are shown, there are more` : count(n, 'dead letter', 'dead letters')),
    redriveAll: (n: string) => `Send ${n} again`,
    deleteAll: (n: string) => `Delete ${n}`,
    these: 'all',
    label: 'Dead letter',
    why: 'Why it was given up',
    reason: 'Reason', attempts: 'Attempts', first: 'First attempt', last: 'Last attempt', route: 'Pipeline and workflow', id: 'ID',
    output: 'Output of the last attempt',
    event: 'Event',
    trace: 'Trace',
    open: 'Open the event',
    noEvent: 'The stored event cannot be read.',
  },
  redrive: {
    title: 'Send again',
    do: (n: number) => `Send ${count(n, 'dead letter', 'dead letters')} again`,
    done: (n: number) => `${count(n, 'dead letter', 'dead letters')} ${n === 1 ? 'is' : 'are'} queued for ${n === 1 ? 'its' : 'their'} handler.`,
    would: (n: number) => `${count(n, 'dead letter', 'dead letters')} would be queued, with the present definitions and all attempts.`,
    resolutions: (n: number) => `${count(n, 'of them is a resolution', 'of them are resolutions')}.`,
    passed: (n: number) =>
      `${count(n, 'says what is no longer so', 'say what is no longer so')}: the incident has passed, or the check fails again. ` +
      'The receiver would believe it.',
    left: (n: number) => `${shared.number(n)} older ${n === 1 ? 'one stays' : 'ones stay'}.`,
    noHandler: (n: number, names: string) => `${count(n, 'stays', 'stay')} because the handler is not defined: ${names}.`,
    failingOnly: 'Leave out what is no longer so',
    newest: 'Only the newest of each entity, check and handler',
    order: 'An incident may go out behind its resolution.',
    nothing: 'Nothing would be sent.',
    first: (n: number) => (n === 1 ? 'Show it' : `Show the first ${n}`),
  },
  remove: {
    title: 'Delete dead letters',
    do: (n: number) => `Delete ${count(n, 'dead letter', 'dead letters')}`,
    done: (n: number) => `${count(n, 'dead letter', 'dead letters')} deleted.`,
    would: (n: number) => `${count(n, 'dead letter', 'dead letters')} would be forgotten with ${n === 1 ? 'its event' : 'their events'}. This cannot be undone.`,
  },
  asking: 'Asking what it would do…',
  groups: {
    columns: {
      check: 'Check', subscription: 'Subscription', namespace: 'Namespace', agents: 'Agents', open: 'In flight', oldest: 'Oldest', given: 'Given',
      again: 'Redelivered', expired: 'Expired', late: 'Late', twice: 'Twice',
    },
    none: 'No round-robin checks',
    noneHelp: 'A check with round_robin: true runs on one agent of each of its subscriptions in turn. Its groups appear here after its first run.',
    noAgents: 'no agents',
    label: 'Round-robin group',
    turns: 'Turns in flight',
    noTurns: 'No turn is open.',
    turn: 'Turn', agent: 'Agent', since: 'For', attempt: 'Attempt', state: 'State',
    running: 'running', lost: 'connection lost', waits: 'waits for an agent', asked: 'asked',
    counts: 'Since the backend began',
    answered: 'Answered', declined: 'Declined', last: 'Last agent', answer: 'Time for an answer', deadline: 'Deadline', waiting: 'Without an agent',
    fairness: 'How evenly turns are spread',
    spread: (least: number, most: number, mean: number) =>
      `An agent had ${shared.number(least)} to ${shared.number(most)} turns, ${mean.toFixed(1)} on average, of all checks with the subscription.`,
    agentsOf: (n: number, from: number, to: number) => `${count(n, 'agent', 'agents')} had ${from === to ? from : `${from}–${to}`}`,
    twice: 'Newest results that came twice',
    both: (first: string, second: string) => `${first}, then ${second}`,
  },
}

/**
 * All screens, and states of them that look different, with the fleet of fleet.mjs. shows is a text that is there once
 * the screen is drawn; phone has it looked at on a phone, too.
 */
export const screens = [
  { name: 'sign-in', path: '/', shows: 'Sign in to lapwing', signedOut: true },
  { name: 'now', path: '/', shows: /^[\d.,]+ events\/s$/, phone: true },
  { name: 'events', path: '/events', shows: 'web-2', phone: true },
  { name: 'event', path: '/events?event=default/web-1/http', shows: 'Subscriptions', phone: true },
  { name: 'groups', path: '/events?group=entity', shows: 'db-1' },
  { name: 'entities', path: '/entities', shows: 'web-2', phone: true },
  { name: 'entities-map', path: '/entities?view=map&group=label:role', shows: 'cache', phone: true },
  { name: 'entity', path: '/entities?entity=default/web-1', shows: 'Keepalive and session', phone: true },
  { name: 'versions', path: '/entities?group=version', shows: 'Share' },
  { name: 'wall', path: '/wall', shows: 'web-2', phone: true },
  { name: 'trace', path: '/trace?event=default/web-1/http', shows: 'Newest trace' },
  { name: 'silences', path: '/silences', shows: '1 silence', phone: true },
  { name: 'silences-calendar', path: '/silences?view=calendar', shows: '1 silence' },
  { name: 'on-call', path: '/oncall', shows: 'operators' },
  { name: 'services', path: '/services', shows: 'shop' },
  { name: 'reports', path: '/reports?ns=default', shows: 'All together' },
  { name: 'explore', path: '/explore', shows: 'Metrics' },
  { name: 'checks', path: '/checks', shows: 'replication' },
  { name: 'check', path: '/checks?check=default/http', shows: 'Next runs' },
  { name: 'config', path: '/config', shows: 'Findings' },
  { name: 'cluster', path: '/cluster', shows: 'Backends' },
  { name: 'audit', path: '/audit', shows: 'alerts' },
  { name: 'access', path: '/access', shows: 'admin' },
  { name: 'pipelines', path: '/pipelines?open=default/alerts', shows: 'alerts' },
  { name: 'queues', path: '/queues', shows: 'team' },
  { name: 'not-found', path: '/nonsense', shows: 'There is no such screen' },
]

/** Opens a screen as the administrator, and waits until it is drawn. */
export async function visit(page, { path, shows, signedOut }, signedIn = false) {
  if (signedOut || signedIn) await page.go(path)
  else await page.signIn(path)
  await page.see(shows)
  await page.settled()
}

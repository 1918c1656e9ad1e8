import { text } from '../text'
import type { IconName } from '../widgets/icons'

/** A screen of the navigation. */
export interface Place {
  to:
    | '/'
    | '/events'
    | '/entities'
    | '/silences'
    | '/oncall'
    | '/wall'
    | '/pipelines'
    | '/queues'
    | '/explore'
    | '/services'
    | '/reports'
    | '/checks'
    | '/config'
    | '/cluster'
    | '/audit'
    | '/access'
  label: string
  icon: IconName
  group: string
  /** It has no room on a phone. */
  secondary?: boolean
}

/** All screens, in the order of the navigation. */
export const places: Place[] = [
  { to: '/', label: text.nav.now, icon: 'now', group: text.nav.watch },
  { to: '/events', label: text.nav.events, icon: 'events', group: text.nav.watch },
  { to: '/entities', label: text.nav.entities, icon: 'entities', group: text.nav.watch },
  { to: '/silences', label: text.nav.silences, icon: 'muted', group: text.nav.watch },
  { to: '/oncall', label: text.nav.oncall, icon: 'oncall', group: text.nav.watch, secondary: true },
  { to: '/services', label: text.nav.services, icon: 'services', group: text.nav.watch, secondary: true },
  { to: '/reports', label: text.nav.reports, icon: 'reports', group: text.nav.watch, secondary: true },
  { to: '/explore', label: text.nav.metrics, icon: 'metrics', group: text.nav.watch, secondary: true },
  { to: '/wall', label: text.nav.wall, icon: 'full', group: text.nav.watch, secondary: true },
  { to: '/checks', label: text.nav.checks, icon: 'checks', group: text.nav.define, secondary: true },
  { to: '/pipelines', label: text.nav.pipelines, icon: 'pipeline', group: text.nav.define, secondary: true },
  { to: '/config', label: text.nav.config, icon: 'config', group: text.nav.define, secondary: true },
  { to: '/queues', label: text.nav.queues, icon: 'queue', group: text.nav.run, secondary: true },
  { to: '/cluster', label: text.nav.cluster, icon: 'cluster', group: text.nav.run, secondary: true },
  { to: '/audit', label: text.nav.audit, icon: 'audit', group: text.nav.run, secondary: true },
  { to: '/access', label: text.nav.access, icon: 'access', group: text.nav.run, secondary: true },
]

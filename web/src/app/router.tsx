import { Button } from '@mantine/core'
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from '@tanstack/react-router'
import { NowScreen } from '../screens/now/NowScreen'
import { accessSearch } from '../screens/access/search'
import { auditSearch } from '../screens/audit/search'
import { checksSearch } from '../screens/checks/search'
import { clusterSearch } from '../screens/cluster/search'
import { configSearch } from '../screens/config/search'
import { entitiesSearch } from '../screens/entities/search'
import { eventsSearch } from '../screens/events/search'
import { pipelinesSearch } from '../screens/pipelines/search'
import { queuesSearch } from '../screens/queues/search'
import { traceSearch } from '../screens/trace/search'
import { oncallSearch } from '../screens/oncall/search'
import { silencesSearch } from '../screens/silences/search'
import { reportsSearch } from '../screens/reports/search'
import { servicesSearch } from '../screens/services/search'
import { metricsSearch } from '../screens/metrics/search'
import { text } from '../text'
import { EmptyState } from '../widgets/EmptyState'
import { formatSearch, parseSearch } from './address'
import { sharedSearch } from './search'
import { Shell } from './Shell'

const root = createRootRoute({
  component: Shell,
  validateSearch: sharedSearch,
  notFoundComponent: () => <EmptyState title={text.noScreen} help={text.noScreenHelp} />,
})

const events = createRoute({
  getParentRoute: () => root,
  path: '/events',
  validateSearch: eventsSearch,
  component: lazyRouteComponent(() => import('../screens/events/EventsScreen'), 'EventsScreen'),
})

const entities = createRoute({
  getParentRoute: () => root,
  path: '/entities',
  validateSearch: entitiesSearch,
  component: lazyRouteComponent(() => import('../screens/entities/EntitiesScreen'), 'EntitiesScreen'),
})

const now = createRoute({ getParentRoute: () => root, path: '/', component: NowScreen })

const silences = createRoute({
  getParentRoute: () => root,
  path: '/silences',
  validateSearch: silencesSearch,
  component: lazyRouteComponent(() => import('../screens/silences/SilencesScreen'), 'SilencesScreen'),
})

const oncall = createRoute({
  getParentRoute: () => root,
  path: '/oncall',
  validateSearch: oncallSearch,
  component: lazyRouteComponent(() => import('../screens/oncall/OnCallScreen'), 'OnCallScreen'),
})

const wall = createRoute({
  getParentRoute: () => root,
  path: '/wall',
  component: lazyRouteComponent(() => import('../screens/wall/WallScreen'), 'WallScreen'),
})

const trace = createRoute({
  getParentRoute: () => root,
  path: '/trace',
  validateSearch: traceSearch,
  component: lazyRouteComponent(() => import('../screens/trace/TraceScreen'), 'TraceScreen'),
})

const queues = createRoute({
  getParentRoute: () => root,
  path: '/queues',
  validateSearch: queuesSearch,
  component: lazyRouteComponent(() => import('../screens/queues/QueuesScreen'), 'QueuesScreen'),
})

const pipelines = createRoute({
  getParentRoute: () => root,
  path: '/pipelines',
  validateSearch: pipelinesSearch,
  component: lazyRouteComponent(() => import('../screens/pipelines/PipelinesScreen'), 'PipelinesScreen'),
})

const metrics = createRoute({
  getParentRoute: () => root,
  path: '/explore', // /metrics has the backend's own metrics
  validateSearch: metricsSearch,
  component: lazyRouteComponent(() => import('../screens/metrics/MetricsScreen'), 'MetricsScreen'),
})

const services = createRoute({
  getParentRoute: () => root,
  path: '/services',
  validateSearch: servicesSearch,
  component: lazyRouteComponent(() => import('../screens/services/ServicesScreen'), 'ServicesScreen'),
})

const reports = createRoute({
  getParentRoute: () => root,
  path: '/reports',
  validateSearch: reportsSearch,
  component: lazyRouteComponent(() => import('../screens/reports/ReportsScreen'), 'ReportsScreen'),
})

const checks = createRoute({
  getParentRoute: () => root,
  path: '/checks',
  validateSearch: checksSearch,
  component: lazyRouteComponent(() => import('../screens/checks/ChecksScreen'), 'ChecksScreen'),
})

const cluster = createRoute({
  getParentRoute: () => root,
  path: '/cluster',
  validateSearch: clusterSearch,
  component: lazyRouteComponent(() => import('../screens/cluster/ClusterScreen'), 'ClusterScreen'),
})

const audit = createRoute({
  getParentRoute: () => root,
  path: '/audit',
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import('../screens/audit/AuditScreen'), 'AuditScreen'),
})

const config = createRoute({
  getParentRoute: () => root,
  path: '/config',
  validateSearch: configSearch,
  component: lazyRouteComponent(() => import('../screens/config/ConfigScreen'), 'ConfigScreen'),
})

const access = createRoute({
  getParentRoute: () => root,
  path: '/access',
  validateSearch: accessSearch,
  component: lazyRouteComponent(() => import('../screens/access/AccessScreen'), 'AccessScreen'),
})

/** The parts that screens are made of, in development only. */
const development = import.meta.env.DEV
  ? [
      createRoute({
        getParentRoute: () => root,
        path: '/styleguide',
        component: lazyRouteComponent(() => import('../screens/styleguide/StyleguideScreen'), 'StyleguideScreen'),
      }),
    ]
  : []

export const router = createRouter({
  routeTree: root.addChildren([
    now,
    events,
    ...development,
    entities,
    silences,
    oncall,
    checks,
    cluster,
    audit,
    config,
    access,
    wall,
    trace,
    queues,
    pipelines,
    metrics,
    services,
    reports,
  ]),
  parseSearch,
  stringifySearch: formatSearch,
  defaultPreload: 'intent',
  defaultErrorComponent: ({ error }) => (
    <EmptyState title={text.failedScreen} help={error instanceof Error ? error.message : String(error)}>
      <Button onClick={() => location.reload()}>{text.reload}</Button>
    </EmptyState>
  ),
})

/** Fetches the code of the screen at a path, if it has any of its own. */
export function loadScreen(path: string): void {
  const screen = Object.entries(router.routesByPath).find(([at]) => at === path)?.[1]
  if (screen) void router.loadRouteChunk(screen)?.catch(() => undefined) // the router tries again, and tells
}

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}

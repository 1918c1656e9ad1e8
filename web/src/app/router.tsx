import { Button } from '@mantine/core'
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from '@tanstack/react-router'
import { NowScreen } from '../screens/now/NowScreen'
import { EventsScreen } from '../screens/events/EventsScreen'
import { eventsSearch } from '../screens/events/search'
import { text } from '../text'
import { EmptyState } from '../widgets/EmptyState'
import { sharedSearch } from './search'
import { Shell } from './Shell'

const root = createRootRoute({
  component: Shell,
  validateSearch: sharedSearch,
  notFoundComponent: () => <EmptyState title={text.noScreen} help={text.noScreenHelp} />,
})

const events = createRoute({ getParentRoute: () => root, path: '/events', validateSearch: eventsSearch, component: EventsScreen })

const now = createRoute({ getParentRoute: () => root, path: '/', component: NowScreen })

const wall = createRoute({
  getParentRoute: () => root,
  path: '/wall',
  component: lazyRouteComponent(() => import('../screens/wall/WallScreen'), 'WallScreen'),
})

export const router = createRouter({
  routeTree: root.addChildren([
    now,
    events,
    wall,
  ]),
  defaultPreload: 'intent',
  defaultErrorComponent: ({ error }) => (
    <EmptyState title={text.failedScreen} help={error instanceof Error ? error.message : String(error)}>
      <Button onClick={() => location.reload()}>{text.reload}</Button>
    </EmptyState>
  ),
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}

import { SegmentedControl } from '@mantine/core'
import { getRouteApi } from '@tanstack/react-router'
import { everywhere } from '../../app/search'
import { accessText as t } from '../../text/access'
import { Screen, Space } from '../../widgets/Screen'
import { SearchBox } from '../../widgets/SearchBox'
import { Keys } from './Keys'
import { Bindings, Roles } from './Roles'
import { Tester } from './Tester'
import { Users } from './Users'
import type { ViewProps } from './view'

const route = getRouteApi('/access')

/** Who may do what, and by which binding. */
export function AccessScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change: ViewProps['change'] = (part) => void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const view = search.view ?? 'users'
  const frame: ViewProps['frame'] = ({ bar, detail, flush = true, children }) => (
    <Screen
      title={t.title}
      flush={flush}
      detail={detail}
      bar={
        <>
          <SegmentedControl
            size="xs"
            aria-label={t.which}
            value={view}
            data={t.views}
            onChange={(next) => change({ view: next === 'users' ? undefined : next, open: undefined, sort: undefined, act: undefined })}
          />
          {view !== 'test' && (
            <SearchBox value={search.q ?? ''} placeholder={t.search} onChange={(q) => change({ q: q === '' ? undefined : q })} />
          )}
          <Space />
          {bar}
        </>
      }
    >
      {children}
    </Screen>
  )
  const props: ViewProps = { search, namespace: search.ns ?? everywhere, change, frame }
  if (view === 'roles') return <Roles {...props} />
  if (view === 'bindings') return <Bindings {...props} />
  if (view === 'keys') return <Keys {...props} />
  if (view === 'test') return <Tester {...props} />
  return <Users {...props} />
}

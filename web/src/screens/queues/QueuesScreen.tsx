import { SegmentedControl } from '@mantine/core'
import { getRouteApi } from '@tanstack/react-router'
import { everywhere } from '../../app/search'
import { text } from '../../text/queues'
import { Screen, Space } from '../../widgets/Screen'
import { GroupPane, GroupTable } from './Groups'
import { HandlerPane, HandlerTable } from './Handlers'
import { LetterBar, LetterPane, LetterTable } from './Letters'
import type { PartProps } from './part'
import type { QueuesTab } from './search'

const route = getRouteApi('/queues')

/** What waits for handlers, what they never took, and the turns of round-robin checks. */
export function QueuesScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const { tab = 'handlers', handler, letter, group } = search
  const part: PartProps = {
    namespace: search.ns ?? everywhere,
    search,
    change: (to) => void navigate({ search: (all) => ({ ...all, ...to }), replace: true }),
  }
  const detail =
    tab === 'handlers'
      ? handler !== undefined && <HandlerPane {...part} open={handler} />
      : tab === 'letters'
        ? letter !== undefined && <LetterPane {...part} open={letter} />
        : group !== undefined && <GroupPane {...part} open={group} />
  return (
    <Screen
      title={text.title}
      flush
      bar={
        <>
          <SegmentedControl
            size="xs"
            aria-label={text.which}
            value={tab}
            data={Object.entries(text.tabs).map(([value, label]) => ({ value, label }))}
            onChange={(to) => part.change({ tab: to === 'handlers' ? undefined : (to as QueuesTab), sort: undefined })}
          />
          <Space />
          {tab === 'letters' && <LetterBar {...part} />}
        </>
      }
      detail={detail}
    >
      {tab === 'handlers' && <HandlerTable {...part} />}
      {tab === 'letters' && <LetterTable {...part} />}
      {tab === 'groups' && <GroupTable {...part} />}
    </Screen>
  )
}

import { Button, SegmentedControl } from '@mantine/core'
import { getRouteApi } from '@tanstack/react-router'
import { useState } from 'react'
import { kinds, type Definition } from '../../api/definitions'
import { useRights } from '../../app/rights'
import { everywhere } from '../../app/search'
import { DefinitionEditor } from '../../editor'
import { oncall as t } from '../../text/oncall'
import { FormDialog } from '../../widgets/FormDialog'
import { Screen, Space } from '../../widgets/Screen'
import { Namespace } from '../silences/SilenceForm'
import { CalendarDetail, Calendars } from './Calendars'
import { ContactDetail, Contacts } from './Contacts'
import { Escalations } from './Escalations'
import { Rotas } from './Rotas'
import type { OnCallSearch } from './search'

const route = getRouteApi('/oncall')

type Makes = 'rotas' | 'contacts' | 'calendars'

/** What new definitions begin with. */
const begins: Record<Makes, Record<string, unknown>> = {
  rotas: { time_zone: 'Europe/Berlin', contacts: ['NAME'], start: `${new Date().toISOString().slice(0, 10)}T09:00`, shift: 604_800 },
  contacts: { full_name: '', email: '', handlers: [] },
  calendars: {
    description: '',
    time_zone: 'Europe/Berlin',
    windows: [{ rrule: 'FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR', begin: '08:00', end: '18:00' }],
  },
}

/** Who is on call, how they are reached, and which escalations go on. */
export function OnCallScreen() {
  const search = route.useSearch()
  const navigate = route.useNavigate()
  const change = (part: { [K in keyof OnCallSearch]?: string | undefined }) =>
    void navigate({ search: (all) => ({ ...all, ...part }), replace: true })
  const namespace = search.ns ?? everywhere
  const part = search.part ?? 'rotas'
  const makes = part === 'escalations' ? undefined : (part as Makes)
  const rights = useRights(namespace)
  const [making, setMaking] = useState<{ kind: Makes; namespace: string }>()
  const [asking, setAsking] = useState<string>()
  const why = makes && rights.why('create', makes)
  const close = () => change({ open: undefined })
  const open = (key: string | undefined) => change({ open: key })
  const shared = {
    namespace,
    selected: search.open,
    onOpen: open,
    sort: search.sort,
    onSort: (sort: string | undefined) => change({ sort }),
  }
  return (
    <Screen
      title={t.title}
      flush={part !== 'rotas'}
      bar={
        <>
          <SegmentedControl
            size="xs"
            aria-label={t.part}
            value={part}
            data={t.parts}
            onChange={(value) => change({ part: value === 'rotas' ? undefined : value, open: undefined, sort: undefined })}
          />
          <Space />
          {makes && (
            <Button
              size="xs"
              disabled={why !== undefined}
              title={why}
              onClick={() => (namespace === everywhere ? setAsking('') : setMaking({ kind: makes, namespace }))}
            >
              {t.make[makes]}
            </Button>
          )}
        </>
      }
      detail={
        search.open !== undefined &&
        (part === 'contacts' ? (
          <ContactDetail id={search.open} onClose={close} />
        ) : (
          part === 'calendars' && <CalendarDetail id={search.open} onClose={close} />
        ))
      }
    >
      {part === 'rotas' && <Rotas namespace={namespace} week={search.week} onWeek={(week) => change({ week })} />}
      {part === 'escalations' && <Escalations {...shared} />}
      {part === 'contacts' && <Contacts {...shared} />}
      {part === 'calendars' && <Calendars {...shared} />}
      {asking !== undefined && makes && (
        <FormDialog
          opened
          title={t.makeIn}
          label={t.continue}
          disabled={asking === ''}
          onClose={() => setAsking(undefined)}
          act={{
            isPending: false,
            error: null,
            mutate: () => {
              setMaking({ kind: makes, namespace: asking })
              setAsking(undefined)
            },
          }}
        >
          <Namespace value={asking} onChange={setAsking} />
        </FormDialog>
      )}
      {making && (
        <DefinitionEditor
          fresh
          kind={kinds[making.kind]}
          definition={{ metadata: { name: 'new', namespace: making.namespace }, ...begins[making.kind] } as Definition}
          onClose={() => setMaking(undefined)}
        />
      )}
    </Screen>
  )
}

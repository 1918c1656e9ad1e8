import { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { keyOf, refOf } from '../live/event'
import type { Feed } from '../live/feed'
import type { Client } from '../session/client'
import type { Session } from '../session/session'
import { Announcer } from '../store/announcer'
import type { Group } from '../store/row'
import { text } from '../text'
import { Detail, type DetailHandle } from './Detail'
import { EventList, type EventListHandle } from './EventList'
import css from './EventsPage.module.css'
import { Header } from './Header'
import { KeyHelp, type KeyHelpHandle } from './KeyHelp'
import { Summary } from './Summary'
import { Toolbar } from './Toolbar'
import { useFeed, useFeedVersion } from './use-feed'
import { useKeys } from './use-keys'
import { useMedia } from './use-media'
import { useViewState } from './use-view-state'
import type { ViewState } from './view-state'

interface Props {
  user: string
  session: Session
  client: Client
}

export function EventsPage({ user, session, client }: Props) {
  const [view, change] = useViewState()
  const feed = useFeed(view.namespace, session)
  const [namespaces, setNamespaces] = useState<string[]>([])
  const help = useRef<KeyHelpHandle>(null)
  const narrow = useMedia('(max-width: 900px)')
  const covered = narrow && view.event !== undefined

  useEffect(() => {
    client.namespaces().then(setNamespaces, () => {
      // Not permitted or not reachable: the switcher offers the namespace in the address bar, the badge shows the reason.
    })
  }, [client])

  // A user of one namespace may not read all of them: start with that one.
  const first = namespaces[0]
  const onDenied = useCallback(() => {
    if (view.namespace === '-' && first !== undefined) change({ namespace: first, event: undefined })
  }, [view.namespace, first, change])

  return (
    <div className={css.page}>
      <Header
        inert={covered}
        user={user}
        namespace={view.namespace}
        namespaces={namespaces}
        feed={feed}
        onNamespace={(namespace) => change({ namespace, event: undefined })}
        onHelp={() => help.current?.open()}
        onSignOut={() => void session.signOut()}
      />
      {feed && (
        <Body
          key={feed.namespace}
          feed={feed}
          client={client}
          view={view}
          change={change}
          narrow={narrow}
          onDenied={onDenied}
          onHelp={() => help.current?.open()}
        />
      )}
      <KeyHelp ref={help} />
    </div>
  )
}

interface BodyProps {
  feed: Feed
  client: Client
  view: ViewState
  change: (part: Partial<ViewState>) => void
  /** The detail covers the list. */
  narrow: boolean
  onDenied: () => void
  onHelp: () => void
}

function Body({ feed, client, view, change, narrow, onDenied, onHelp }: BodyProps) {
  useFeedVersion(feed)
  const { store } = feed
  const list = useRef<EventListHandle>(null)
  const search = useRef<HTMLInputElement>(null)
  const detail = useRef<DetailHandle>(null)
  const [said, setSaid] = useState('')

  const openKey = view.event ? keyOf(view.event) : undefined
  const [cursor, setCursor] = useState(openKey)
  const statuses = view.groups.join()

  useEffect(() => {
    feed.setView({ query: view.query, groups: view.groups, incidentsFirst: view.incidentsFirst })
  }, [feed, view.query, statuses, view.incidentsFirst]) // the groups are compared by their names

  useEffect(() => {
    const announcer = new Announcer(setSaid)
    store.onTransition = (transition) => announcer.add(transition)
    return () => {
      store.onTransition = undefined
      announcer.close()
    }
  }, [store])

  const { incidents } = store
  useEffect(() => {
    document.title = incidents > 0 ? `(${text.compact(incidents)}) ${text.name}` : text.name
  }, [incidents])

  const lost = store.synced && (feed.stream.phase === 'waiting' || feed.stream.phase === 'connecting')
  const wasLost = useRef(false)
  useEffect(() => {
    if (lost !== wasLost.current) setSaid(lost ? text.announceLost : text.announceBack)
    wasLost.current = lost
  }, [lost])

  const denied = feed.stream.phase === 'denied'
  useEffect(() => {
    if (denied) onDenied()
  }, [denied, onDenied])

  const open = useCallback((key: string) => change({ event: refOf(key) }), [change])
  const close = useCallback(() => {
    change({ event: undefined })
    list.current?.focus()
  }, [change])

  /** Moves to another row; an open detail follows. */
  const step = useCallback(
    (by: number) => {
      const key = list.current?.step(by)
      if (key !== undefined && openKey !== undefined) open(key)
    },
    [open, openKey],
  )
  const toggleGroup = useCallback(
    (group: Group) =>
      change({ groups: view.groups.includes(group) ? view.groups.filter((g) => g !== group) : [...view.groups, group] }),
    [change, view.groups],
  )

  useKeys({
    search,
    step,
    open: () => {
      if (cursor === undefined) return
      open(cursor)
      detail.current?.focus()
    },
    escape: () => {
      if (openKey !== undefined) close()
      else if (view.query !== '') change({ query: '' })
    },
    reorder: () => feed.reorder(),
    toggleOrder: () => change({ incidentsFirst: !view.incidentsFirst }),
    copy: () => detail.current?.copy(),
    help: onHelp,
    focusList: () => list.current?.focus(),
  })

  const filtered = view.query !== '' || view.groups.length > 0
  const clearFilter = useMemo(() => () => change({ query: '', groups: [] }), [change])

  return (
    <div className={css.body} data-open={openKey !== undefined}>
      <main className={css.main} inert={narrow && openKey !== undefined}>
        <Summary feed={feed} selected={view.groups} onToggle={toggleGroup} />
        <Toolbar
          ref={search}
          query={view.query}
          onQuery={(query) => change({ query })}
          incidentsFirst={view.incidentsFirst}
          onIncidentsFirst={(incidentsFirst) => change({ incidentsFirst })}
          shown={store.view.length}
          total={store.size}
          loading={!store.synced}
        />
        <EventList
          ref={list}
          feed={feed}
          openKey={openKey}
          cursor={cursor}
          filtered={filtered}
          onCursor={setCursor}
          onOpen={open}
          onClearFilter={clearFilter}
        />
      </main>
      {view.event && openKey !== undefined && (
        <Detail
          ref={detail}
          feed={feed}
          client={client}
          target={openKey}
          modal={narrow}
          onClose={close}
          onStep={step}
        />
      )}
      <p className="visually-hidden" role="status" aria-live="polite">
        {said}
      </p>
    </div>
  )
}

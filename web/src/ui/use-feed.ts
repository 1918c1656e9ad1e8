import { useEffect, useState, useSyncExternalStore } from 'react'
import { Feed } from '../live/feed'
import type { Session } from '../session/session'

/** Follows a namespace for as long as the component shows it. */
export function useFeed(namespace: string, session: Session): Feed | undefined {
  const [feed, setFeed] = useState<Feed>()
  useEffect(() => {
    const port = new Worker(new URL('../live/worker.ts', import.meta.url), { type: 'module' })
    const opened = new Feed({ namespace, session, port })
    setFeed(opened)
    return () => opened.close()
  }, [namespace, session])
  return feed?.namespace === namespace ? feed : undefined
}

/** Draws the component again whenever the feed has news. */
export function useFeedVersion(feed: Feed): number {
  return useSyncExternalStore(feed.subscribe, () => feed.version)
}

/** Unix milliseconds, drawn again every second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return now
}

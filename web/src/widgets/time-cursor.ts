import { useSyncExternalStore } from 'react'

type Listener = (at: number | undefined, by: unknown) => void

/** The moment under the pointer, shared by the plots and bands of one time axis. */
export class TimeCursor {
  at: number | undefined
  private readonly listeners = new Set<Listener>()

  set(at: number | undefined, by: unknown): void {
    if (at === this.at) return
    this.at = at
    for (const listener of this.listeners) listener(at, by)
  }

  subscribe = (listener: Listener): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }
}

const cursors = new Map<string, TimeCursor>()

/** The cursor of those that have the same key. */
export function cursorOf(key: string): TimeCursor {
  const cursor = cursors.get(key) ?? new TimeCursor()
  cursors.set(key, cursor)
  return cursor
}

export function useTimeCursor(key: string): number | undefined {
  const cursor = cursorOf(key)
  return useSyncExternalStore(cursor.subscribe, () => cursor.at)
}

/** The space of a plot beside its area, in px, so that a band above it has the same time axis. */
export const plotEdges = { left: 64, right: 16 }

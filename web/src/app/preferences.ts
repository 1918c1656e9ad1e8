import { useSyncExternalStore } from 'react'
import type { EventsSearch } from '../screens/events/search'

/** What a user chose for this browser. */
export interface Preferences {
  /** Times in the browser's zone or in UTC. */
  time: 'local' | 'utc'
  /** The height of rows. */
  density: 'comfortable' | 'compact'
  contrast: 'normal' | 'high'
  /** The navigation shows icons only. */
  narrowNav: boolean
  /** Searches for events by name. */
  searches: readonly { name: string; search: EventsSearch }[]
}

const key = 'lapwing.preferences'
const defaults: Preferences = { time: 'local', density: 'comfortable', contrast: 'normal', narrowNav: false, searches: [] }

function read(): Preferences {
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem(key) ?? '{}') as Partial<Preferences>) }
  } catch {
    return defaults
  }
}

let current = read()
const listeners = new Set<() => void>()

/** Shows the colour scheme that Mantine keeps before it draws, so that a dark page does not begin light. */
export function applyScheme(): void {
  const kept = localStorage.getItem('mantine-color-scheme-value')
  const dark = kept === 'dark' || (kept !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches)
  document.documentElement.dataset.mantineColorScheme = dark ? 'dark' : 'light'
}

/** Shows the contrast that the user chose. */
export function applyContrast(): void {
  document.documentElement.dataset.contrast = current.contrast
}

export function setPreferences(change: Partial<Preferences>): void {
  current = { ...current, ...change }
  localStorage.setItem(key, JSON.stringify(current))
  applyContrast()
  for (const listener of listeners) listener()
}

export function usePreferences(): Preferences {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => current,
  )
}

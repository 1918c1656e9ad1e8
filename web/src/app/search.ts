/** What all screens keep in the address: the namespace, "-" for all. */
export interface SharedSearch {
  ns?: string | undefined
}

export const everywhere = '-'

export function sharedSearch(search: Record<string, unknown>): SharedSearch {
  return typeof search.ns === 'string' && search.ns !== '' ? { ns: search.ns } : {}
}

/** A text in the address; undefined if there is none, so that it is left out of links. */
export function textIn(search: Record<string, unknown>, key: string): string | undefined {
  const value = search[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

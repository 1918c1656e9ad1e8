/** Parameters that an address may have several times. */
const lists = new Set(['target'])

/** The parameters of an address, all of them texts: an address that somebody typed may have anything. */
export function parseSearch(search: string): Record<string, string | string[]> {
  const params = new URLSearchParams(search)
  const keys = [...new Set(params.keys())]
  return Object.fromEntries(keys.map((key) => [key, lists.has(key) ? params.getAll(key) : (params.getAll(key).at(-1) ?? '')]))
}

export function formatSearch(search: Record<string, unknown>): string {
  const params = new URLSearchParams()
  for (const [key, value] of Object.entries(search)) {
    for (const one of Array.isArray(value) ? value : [value]) if (typeof one === 'string') params.append(key, one)
  }
  const text = params.toString()
  return text === '' ? '' : `?${text}`
}

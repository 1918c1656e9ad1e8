import type { AuditEntry, Silenced } from '../../api/types'

export type SilenceKind = 'active' | 'scheduled' | 'recurring' | 'acknowledgement'

export const keyOf = ({ metadata }: Silenced): string => `${metadata?.namespace}/${metadata?.name}`

/** Splits a key. Names of silences may have slashes, names of namespaces have none. */
export function partsOf(key: string): { namespace: string; name: string } {
  const at = key.indexOf('/')
  return { namespace: key.slice(0, at), name: key.slice(at + 1) }
}

export function recurs({ windows, calendars }: Silenced): boolean {
  return (windows ?? []).length > 0 || (calendars ?? []).length > 0
}

export function kindOf(silence: Silenced, now: number): SilenceKind {
  if (silence.acknowledgement) return 'acknowledgement'
  if (recurs(silence)) return 'recurring'
  return (silence.begin ?? 0) > now ? 'scheduled' : 'active'
}

const any = (name: string | undefined) => name === undefined || name === '' || name === '*'

/** What a silence is about: an entity, a check, a subscription, or the events of selectors. */
export interface Subject {
  entity?: string
  subscription?: string
  check?: string
  selectors?: string
}

export function subjectOf({ subscription, check, label_selector, field_selector }: Silenced): Subject {
  const selectors = [label_selector, field_selector].filter((one) => one !== undefined && one !== '').join(' && ')
  if (selectors !== '') return { selectors }
  const entity = subscription?.startsWith('entity:') ? subscription.slice('entity:'.length) : undefined
  return {
    ...(entity !== undefined ? { entity } : any(subscription) ? {} : { subscription: subscription as string }),
    ...(any(check) ? {} : { check: check as string }),
  }
}

/** Whether all words are somewhere in what a reader sees of a silence. */
export function hasWords(silence: Silenced, typed: string): boolean {
  const { metadata, reason, creator, subscription, check, label_selector, field_selector } = silence
  const text = [
    metadata?.namespace,
    metadata?.name,
    reason,
    creator,
    subscription,
    check,
    label_selector,
    field_selector,
    ...(silence.calendars ?? []),
  ]
    .join('\n')
    .toLowerCase()
  return typed
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word))
}

/** A silence with a later end: from its present end, or from now if that is over. One without an end ends so long after now. */
export function extended(silence: Silenced, by: number, now: number): Silenced {
  const { expire: _, ...rest } = silence
  return { ...rest, expire_at: Math.max(silence.expire_at ?? 0, silence.begin ?? 0, Math.floor(now)) + by }
}

/** A silence as it can be made again after it was deleted. */
export function again(silence: Silenced): Silenced {
  const { expire: _, creator: __, limited_to: ___, ...rest } = silence
  const { created_by: ____, ...metadata } = silence.metadata ?? {}
  return { ...rest, metadata } as Silenced
}

/** A silence that is no longer there. */
export interface Ended {
  key: string
  silence: Silenced
  /** When, in Unix seconds. */
  at: number
  /** Who ended it; undefined if it ended by itself. */
  by?: string
  /** It ended by itself at an unknown time before now: the check passed. */
  resolved?: boolean
}

/** What ended, by the audit log: deleted, or past its end. Entries are newest first. */
export function endedOf(entries: readonly AuditEntry[], there: ReadonlySet<string>, now: number): Ended[] {
  const known = new Map<string, Silenced>()
  const ended: Ended[] = []
  const finish = (key: string, silence: Silenced, before: number) => {
    const at = silence.expire_at ?? 0
    if (at !== 0 && at <= before) ended.push({ key, silence, at })
    else if (silence.expire_on_resolve) ended.push({ key, silence, at: 0, resolved: true })
  }
  for (const { action, namespace = '', name, changes, time, user } of [...entries].reverse()) {
    const key = `${namespace}/${name}`
    const at = Date.parse(time) / 1000
    const whole = (changes ?? []).find(({ path }) => path === '')
    if (action === 'delete') {
      const silence = (whole?.old as Silenced | undefined) ?? known.get(key)
      if (silence) ended.push({ key, silence, at, by: user })
      known.delete(key)
    } else if (whole?.new !== undefined) {
      const old = known.get(key)
      if (old) finish(key, old, at) // it ended by itself, and was made again
      known.set(key, whole.new as Silenced)
    } else {
      const old = known.get(key)
      if (old) known.set(key, changed(old, changes ?? []))
    }
  }
  for (const [key, silence] of known) if (!there.has(key)) finish(key, silence, now)
  return ended.sort((a, b) => b.at - a.at)
}

/** A silence with the changes of an entry. Those inside of lists are left out: nothing of them is shown. */
function changed(silence: Silenced, changes: NonNullable<AuditEntry['changes']>): Silenced {
  const out: Record<string, unknown> = { ...silence }
  for (const { path, new: value } of changes) {
    const field = /^\/([a-z_]+)$/.exec(path)?.[1]
    if (field !== undefined) out[field] = value
  }
  return out as Silenced
}

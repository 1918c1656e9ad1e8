import type { SilenceWindow, Silenced } from '../../api/types'
import { expand } from '../../search/fields'
import { secondsOf } from '../events/Length'

export type Scope = 'entity' | 'check' | 'subscription' | 'selector'

export interface DraftWindow {
  rule: 'cron' | 'rrule'
  text: string
  zone: string
  minutes: string
}

/** A silence as it is being typed. */
export interface Draft {
  namespace: string
  scope: Scope
  entity: string
  check: string
  subscription: string
  labels: string
  fields: string
  name: string
  /** "now", or "moment". */
  begin: string
  beginAt: number | undefined
  /** A length, or "moment". */
  ends: string
  endAt: number | undefined
  reason: string
  passResolve: boolean
  expireOnResolve: boolean
  remind: string
  windows: readonly DraftWindow[]
  calendars: readonly string[]
}

export function newDraft(namespace: string): Draft {
  return {
    namespace,
    scope: 'entity',
    entity: '',
    check: '',
    subscription: '',
    labels: '',
    fields: '',
    name: `page-${crypto.randomUUID().slice(0, 8)}`,
    begin: 'now',
    beginAt: undefined,
    ends: '3600',
    endAt: undefined,
    reason: '',
    passResolve: false,
    expireOnResolve: false,
    remind: '0',
    windows: [],
    calendars: [],
  }
}

/** What would be written; undefined while what is silenced, or a moment, is missing. */
export function silenceOf(draft: Draft, now: Date): Silenced | undefined {
  const subject = subjectOf(draft)
  const begin = draft.begin === 'now' ? undefined : draft.beginAt
  const end = draft.ends === 'moment' ? draft.endAt : undefined
  if (!subject || draft.namespace === '') return undefined
  if ((draft.begin === 'moment' && begin === undefined) || (draft.ends === 'moment' && end === undefined)) return undefined
  const windows = draft.windows.filter(({ text }) => text.trim() !== '').map(windowOf)
  return {
    metadata: { namespace: draft.namespace, name: draft.scope === 'selector' ? draft.name : '' },
    ...subject,
    reason: draft.reason.trim(),
    ...(begin === undefined ? {} : { begin }),
    ...(end === undefined
      ? { expire: secondsOf(draft.ends, begin === undefined ? now : new Date(begin * 1000)) || -1 }
      : { expire_at: end }),
    ...(draft.passResolve ? { pass_resolve: true } : {}),
    ...(draft.expireOnResolve ? { expire_on_resolve: true } : {}),
    ...(draft.remind === '0' ? {} : { remind: Number(draft.remind) }),
    ...(windows.length === 0 ? {} : { windows }),
    ...(draft.calendars.length === 0 ? {} : { calendars: [...draft.calendars] }),
  } as Silenced
}

function subjectOf({ scope, entity, check, subscription, labels, fields, name }: Draft): Partial<Silenced> | undefined {
  const [e, c, s, l, f] = [entity, check, subscription, labels, fields].map((one) => one.trim())
  if (scope === 'entity') return e ? { subscription: `entity:${e}`, ...(c ? { check: c } : {}) } : undefined
  if (scope === 'check') return c ? { check: c } : undefined
  if (scope === 'subscription') return s ? { subscription: s, ...(c ? { check: c } : {}) } : undefined
  if (!(l || f) || name.trim() === '') return undefined
  return { ...(l ? { label_selector: l } : {}), ...(f ? { field_selector: expand(f) } : {}) }
}

function windowOf({ rule, text, zone, minutes }: DraftWindow): SilenceWindow {
  return { [rule]: text.trim(), ...(zone === '' ? {} : { time_zone: zone }), duration: Math.round(Number(minutes) * 60) }
}

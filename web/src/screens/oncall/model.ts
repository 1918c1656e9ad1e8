import type { Contact, Escalation, OnCall, OnCallShift, Rota } from '../../api/types'

/** Times in which no one is on call, in Unix seconds. */
export interface Gap {
  begin: number
  end: number
}

/** Where no turn is, between two times. Turns are by begin, and a later one may overlap an earlier one. */
export function gapsOf(shifts: readonly OnCallShift[], from: number, to: number): Gap[] {
  const gaps: Gap[] = []
  let covered = from
  for (const { begin, end } of shifts) {
    if (begin > covered) gaps.push({ begin: covered, end: Math.min(begin, to) })
    covered = Math.max(covered, end)
    if (covered >= to) break
  }
  if (covered < to) gaps.push({ begin: covered, end: to })
  return gaps
}

export function shiftAt(shifts: readonly OnCallShift[], at: number): OnCallShift | undefined {
  return shifts.find(({ begin, end }) => begin <= at && at < end)
}

/** The first turn that begins after a time, of someone else or after a gap. */
export function shiftAfter(shifts: readonly OnCallShift[], at: number): OnCallShift | undefined {
  return shifts.find(({ begin }) => begin > at)
}

/** Who would have been on call in a time, each once. */
export function contactsIn(shifts: readonly OnCallShift[], from: number, to: number): string[] {
  return [...new Set(shifts.filter(({ begin, end }) => begin < to && from < end).map(({ contact }) => contact))]
}

/** A rota in which a contact is on call at a time, in place of its turns. */
export function withOverride(rota: Rota, override: { contact: string; begin: number; end: number; reason: string }): Rota {
  return { ...rota, overrides: [...(rota.overrides ?? []), override] }
}

export function withoutOverride(rota: Rota, at: number): Rota {
  return { ...rota, overrides: (rota.overrides ?? []).filter((_, i) => i !== at) }
}

/** A rota with its namespace, which answers about turns do not have. */
export interface RotaTurns {
  namespace: string
  rota: Rota
  turns: OnCall
}

export const escalationKey = ({ namespace, entity, check, handler }: Escalation): string => `${namespace}/${entity}/${check} ${handler}`

export interface HandlerLike {
  metadata?: { name?: string; namespace?: string } | undefined
  type?: string
}

/** The handlers of a contact, with their types, and what keeps them from reaching it. */
export interface Reach {
  by: { name: string; type: string | undefined }[]
  broken: 'none' | 'missing' | 'email' | undefined
}

/** How a contact is reached, and what is wrong with that. */
export function reachOf(contact: Contact, handlers: readonly HandlerLike[] | undefined): Reach {
  const there = (name: string) =>
    handlers?.find(({ metadata }) => metadata?.name === name && metadata.namespace === contact.metadata?.namespace)
  const by = (contact.handlers ?? []).map((name) => ({ name, type: handlers === undefined ? '' : there(name)?.type }))
  const broken =
    by.length === 0
      ? 'none'
      : by.some(({ type }) => type === undefined)
        ? 'missing'
        : by.some(({ type }) => type === 'email') && !contact.email
          ? 'email'
          : undefined
  return { by, broken }
}

import { expect, test } from 'vitest'
import type { EventRow } from '../api/types'
import type { Stream } from './connection'
import { EventList, keyOf } from './event-list'

const row = (entity: string, status: number): EventRow => ({
  namespace: 'default',
  entity,
  check: 'cpu',
  status,
  state: status ? 'failing' : 'passing',
  since: 0,
  occurrences: 1,
  last_ok: 0,
  timestamp: 0,
  interval: 60,
  output: '',
  history: [status],
  silenced: [],
})

/** A server that is told what to send, and tells what was asked. */
function server() {
  const asked: string[] = []
  const streams: Stream[] = []
  const connection = {
    follow(stream: Stream) {
      asked.push(new URL(stream.path, 'http://host').search)
      streams.push(stream)
      return () => {}
    },
  }
  const send = (data: object, type = 'window') => streams.at(-1)?.onMessage({ type, data: JSON.stringify(data) })
  return { asked, connection, send }
}

function open() {
  const s = server()
  const list = new EventList({
    query: { namespace: 'default', selector: 'event.is_incident == true', sort: 'severity', groupBy: '' },
    connection: s.connection,
    schedule: (f) => f(),
  })
  const close = list.subscribe(() => {})
  return { ...s, list, close }
}

const counts = (total: number) => ({ critical: total, warning: 0, unknown: 0, silenced: 0, ok: 0, total })
const names = (list: EventList) => Array.from({ length: list.length }, (_, i) => list.at(i)?.entity)

test('rows come in the order of the server', () => {
  const { list, send, asked, close } = open()
  expect(asked).toEqual(['?sort=severity&offset=0&limit=100&fieldSelector=event.is_incident+%3D%3D+true'])
  expect(list.ready).toBe(false)
  send({ counts: counts(2), offset: 0, order: ['default/b/cpu', 'default/a/cpu'], rows: [row('a', 1), row('b', 2)] })
  expect(list.ready).toBe(true)
  expect(names(list)).toEqual(['b', 'a'])
  send({ counts: counts(2), offset: 0, rows: [row('a', 2)] })
  expect(list.at(1)?.status).toBe(2)
  expect(list.changed('default/a/cpu')).toBeGreaterThan(0)
  close()
})

test('held rows keep their places, and change in them', () => {
  const { list, send, close } = open()
  send({ counts: counts(2), offset: 0, order: ['default/a/cpu', 'default/b/cpu'], rows: [row('a', 1), row('b', 1)] })
  list.hold(true)
  send({
    counts: counts(2),
    offset: 0,
    order: ['default/c/cpu', 'default/b/cpu'],
    rows: [row('c', 2), row('a', 0)],
    gone: ['default/a/cpu'],
  })
  expect(names(list)).toEqual(['a', 'b'])
  expect(list.at(0)?.status).toBe(0)
  expect(list.isGone('default/a/cpu')).toBe(true)
  expect(list.waiting).toBe(1)
  list.hold(false)
  expect(names(list)).toEqual(['c', 'b'])
  expect(list.waiting).toBe(0)
  close()
})

test('scrolling asks for other rows, which are drawn although rows are held', () => {
  const { list, send, asked, close } = open()
  send({ counts: counts(300), offset: 0, order: ['default/a/cpu'], rows: [row('a', 1)] })
  list.hold(true)
  list.show({ offset: 200, limit: 50 })
  expect(asked[1]).toContain('offset=200&limit=50')
  expect(list.at(0)?.entity).toBe('a') // until the answer
  send({ counts: counts(300), offset: 200, order: ['default/x/cpu'], rows: [row('x', 1)] })
  expect(list.at(200)?.entity).toBe('x')
  expect(list.length).toBe(300)
  close()
})

test('a list that the server ends says why', () => {
  const { list, send, close } = open()
  send({ message: 'too many lists' }, 'failed')
  expect(list.failed).toBe('too many lists')
  close()
})

test('groups', () => {
  const { list, send, close } = open()
  send({ counts: counts(3), offset: 0, groups: 1, group: [{ value: 'r1', counts: counts(3) }] })
  expect(list.groupCount).toBe(1)
  expect(list.groups[0]?.value).toBe('r1')
  close()
})

test('keys', () => {
  expect(keyOf(row('a', 0))).toBe('default/a/cpu')
})

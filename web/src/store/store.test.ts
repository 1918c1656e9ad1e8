import { describe, expect, test } from 'vitest'
import type { RowData } from '../live/event'
import type { Batch } from '../live/protocol'
import { EventStore, type Transition, type ViewOptions } from './store'

function data(name: string, status = 0, more: Partial<RowData> = {}): RowData {
  return { key: `n\0${name}\0c`, status, output: '', occurrences: 1, silenced: false, seen: 1, history: '', ...more }
}
function batch(rows: RowData[], more: Partial<Batch> = {}): Batch {
  return { epoch: 1, rows, deleted: [], watched: undefined, synced: false, received: 0, ...more }
}
const all: ViewOptions = { query: '', groups: [], incidentsFirst: true }
const shown = (store: EventStore) => store.view.map((row) => row.entity)

function filled(...rows: RowData[]): EventStore {
  const store = new EventStore()
  store.apply(batch(rows, { synced: true }))
  store.reorder()
  return store
}

describe('EventStore', () => {
  test('counts every event in one group', () => {
    const store = filled(data('a', 2), data('b', 1), data('c', 127), data('d'), data('e', 2, { silenced: true }), data('f', 0, { silenced: true }))
    expect(store.counts).toEqual({ critical: 1, warning: 1, unknown: 1, silenced: 1, ok: 2 })
    expect(store.incidents).toBe(3)
    store.apply(batch([data('a', 0), data('e', 2)], { deleted: ['n\0b\0c', 'n\0none\0c'] }))
    expect(store.counts).toEqual({ critical: 1, warning: 0, unknown: 1, silenced: 0, ok: 3 })
    expect(store.size).toBe(5)
  })

  test('orders by severity and name, or by name', () => {
    const store = filled(data('ok'), data('w2', 1), data('crit', 2), data('muted', 2, { silenced: true }), data('w1', 1), data('unk', 3))
    expect(shown(store)).toEqual(['crit', 'w1', 'w2', 'unk', 'muted', 'ok'])
    store.setView({ ...all, incidentsFirst: false })
    expect(shown(store)).toEqual(['crit', 'muted', 'ok', 'unk', 'w1', 'w2'])
  })

  test('a row changes at once and moves when reordered', () => {
    const store = filled(data('a'), data('b'), data('c'))
    const view = store.view
    store.apply(batch([data('c', 2, { output: 'down' })]))
    expect(store.view).toBe(view)
    expect(store.view[2]).toMatchObject({ entity: 'c', status: 2, output: 'down', revision: 2 })
    expect(store.misplaced).toBe(1)
    store.reorder()
    expect(shown(store)).toEqual(['c', 'a', 'b'])
    expect(store.misplaced).toBe(0)
  })

  test('a row that comes back needs no reordering', () => {
    const store = filled(data('a'), data('b'))
    store.apply(batch([data('b', 2)]))
    store.apply(batch([data('b', 0)]))
    expect(store.misplaced).toBe(0)
  })

  test('a deleted row stays, marked, until reordered', () => {
    const store = filled(data('a'), data('b', 1))
    store.apply(batch([], { deleted: ['n\0b\0c'] }))
    expect(shown(store)).toEqual(['b', 'a'])
    expect(store.view[0]?.gone).toBe(true)
    expect(store.get('n\0b\0c')).toBeUndefined()
    store.reorder()
    expect(shown(store)).toEqual(['a'])
  })

  test('a row deleted and made again is a new row', () => {
    const store = filled(data('a'))
    store.apply(batch([], { deleted: ['n\0a\0c'] }))
    store.apply(batch([data('a', 1)]))
    expect(store.misplaced).toBe(2)
    store.reorder()
    expect(store.view.map((row) => [row.entity, row.status, row.gone])).toEqual([['a', 1, false]])
  })

  test('a new row that is deleted before it was shown leaves no trace', () => {
    const store = filled(data('a'))
    store.apply(batch([data('b')]))
    store.apply(batch([], { deleted: ['n\0b\0c'] }))
    expect(store.misplaced).toBe(0)
  })

  test('filters by words and groups; rows enter and leave when reordered', () => {
    const store = filled(data('web1', 2, { output: 'Connection refused' }), data('web2'), data('db1', 2))
    store.setView({ ...all, query: 'WEB' })
    expect(shown(store)).toEqual(['web1', 'web2'])
    store.setView({ ...all, query: 'refused' })
    expect(shown(store)).toEqual(['web1'])
    store.setView({ ...all, groups: ['critical'] })
    expect(shown(store)).toEqual(['db1', 'web1'])
    store.apply(batch([data('web1', 0), data('web2', 2)]))
    expect(shown(store)).toEqual(['db1', 'web1'])
    expect(store.misplaced).toBe(2)
    store.reorder()
    expect(shown(store)).toEqual(['db1', 'web2'])
  })

  test('a new connection keeps the rows until it is synced, then drops those it did not mention', () => {
    const store = filled(data('a'), data('b', 2), data('c'))
    store.apply(batch([data('a')], { epoch: 2 }))
    expect(store.size).toBe(3)
    store.apply(batch([data('c')], { epoch: 2, synced: true }))
    expect(store.size).toBe(2)
    expect(store.incidents).toBe(0)
    store.reorder()
    expect(shown(store)).toEqual(['a', 'c'])
  })

  test('tells of live transitions only', () => {
    const store = new EventStore()
    const told: string[] = []
    store.onTransition = (t: Transition) => told.push(`${t.row.entity} ${t.to}`)
    store.apply(batch([data('a', 2), data('b')], { synced: true }))
    store.apply(batch([data('a', 0), data('b', 1), data('c', 2), data('d'), data('e', 2, { silenced: true })]))
    store.apply(batch([data('b', 2), data('e', 0)])) // worse is not new, and the silenced stay silent
    expect(told).toEqual(['a resolved', 'b incident', 'c incident'])
    store.apply(batch([data('a', 2), data('b', 2)], { epoch: 2 }))
    expect(told).toHaveLength(3)
  })

  test('reordering in steps equals building anew, for random changes', () => {
    let state = 42
    const next = (n: number) => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % n
    const store = filled()
    store.setView({ ...all, query: '1', groups: ['critical', 'warning', 'ok'] })
    for (let step = 0; step < 300; step++) {
      const rows = Array.from({ length: next(4) }, () => data(`e${next(120)}`, next(4), { silenced: next(5) === 0 }))
      const deleted = next(3) === 0 ? [`n\0e${next(120)}\0c`] : []
      store.apply(batch(rows, { deleted }))
      if (next(3) === 0) store.reorder()
    }
    store.reorder()
    const stepwise = store.view.map((row) => row.key)
    store.setView(store.viewOptions)
    expect(stepwise).toEqual(store.view.map((row) => row.key))
    expect(stepwise.length).toBeGreaterThan(5)
    store.view.forEach((row, i) => expect(store.indexOf(row)).toBe(i))
    expect(Object.values(store.counts).reduce((a, b) => a + b)).toBe(store.size)
  })
})

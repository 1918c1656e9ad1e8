import { describe, expect, test } from 'vitest'
import type { CheckHistory } from '../../api/types'
import { plainOutput, statusSince } from './present'

const metadata = { name: 'c' }
const history = (...statuses: number[]): CheckHistory[] => statuses.map((status, i) => ({ status, executed: 100 + i }))

describe('statusSince', () => {
  test('the first of the last run', () => {
    expect(statusSince({ metadata, status: 2, occurrences: 2, history: history(0, 2, 0, 2, 2) })).toEqual({ at: 103, atLeast: false })
  })
  test('a run as long as the history, exactly or longer', () => {
    expect(statusSince({ metadata, status: 0, occurrences: 3, history: history(0, 0, 0) })).toEqual({ at: 100, atLeast: false })
    expect(statusSince({ metadata, status: 0, occurrences: 9, history: history(0, 0, 0) })).toEqual({ at: 100, atLeast: true })
  })
  test('a history that does not say', () => {
    expect(statusSince({ metadata, status: 2, history: null })).toBeUndefined()
    expect(statusSince({ metadata, status: 2, history: history(2, 0) })).toBeUndefined()
    expect(statusSince({ metadata, status: 2, history: [{ status: 2, executed: 0 }] })).toBeUndefined()
  })
})

test.each([
  ['plain\ntext\n', 'plain\ntext'],
  ['\u001b[1;31mred\u001b[0m', 'red'],
  ['\u001b]8;;http://x\u0007link\u001b]8;;\u0007', 'link'],
  ['a\r\nb\rc', 'a\nb\nc'],
  ['bell\u0007 null\u0000 tab\t', 'bell null tab'],
])('%j prints as %j', (output, want) => {
  expect(plainOutput(output)).toBe(want)
})

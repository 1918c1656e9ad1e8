import { expect, test } from 'vitest'
import { described, diffLines, parse, placed, write, type Mistake } from './document'

const check = 'type: CheckConfig\nmetadata:\n  name: disk\nspec:\n  interval: 60\n  handlers: [a, b]\n'

test('a text that is no YAML, or no object', () => {
  const bad = parse('a: [1\nb: 2') as { mistakes: Mistake[] }
  expect(bad.mistakes.length).toBeGreaterThan(0)
  expect(parse('- 1') as { mistakes: Mistake[] }).toMatchObject({ mistakes: [{ from: 0 }] })
})

test('mistakes of the server have places', () => {
  const parsed = parse(check)
  if (!('document' in parsed)) throw new Error('not parsed')
  const at = (field: string) => {
    const [{ from, to } = { from: 0, to: 0 }] = placed(parsed.document, [{ field, message: 'm' }])
    return check.slice(from, to)
  }
  expect(at('interval')).toBe('60')
  expect(at('handlers[1]')).toBe('b')
  expect(at('handlers.0')).toBe('a')
  expect(at('metadata.name')).toBe('disk')
  expect(at('ttl')).toBe('i') // the spec, which lacks it
  expect(at('')).toBe('i')
})

test('what is written is read again', () => {
  const value = { spec: { command: `check -w 80 "${'long '.repeat(40)}"`, n: 1 } }
  expect((parse(write(value)) as { value: unknown }).value).toEqual(value)
})

test('lines that differ', () => {
  expect(diffLines(check, check)).toEqual([])
  const lines = diffLines(check, check.replace('60', '30'))
  expect(lines.filter(({ kind }) => kind !== 'same')).toEqual([
    { kind: 'removed', text: '  interval: 60' },
    { kind: 'added', text: '  interval: 30' },
  ])
})

test('fields have their names in descriptions', () => {
  expect(described('pass_resolve', 'PassResolve lets resolutions through.')).toBe('pass_resolve lets resolutions through.')
  expect(described('ttl', 'TTL is in seconds')).toBe('ttl is in seconds')
  expect(described('command', 'what agents run')).toBe('what agents run')
  expect(described('handlers')).toBe('')
})

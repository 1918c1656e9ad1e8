import { describe, expect, test } from 'vitest'
import { SSEParser, type ServerEvent } from './sse'

function parse(...chunks: string[]): ServerEvent[] {
  const events: ServerEvent[] = []
  const parser = new SSEParser((event) => events.push(event))
  for (const chunk of chunks) parser.feed(chunk)
  return events
}

describe('SSEParser', () => {
  const cases: [string, string, ServerEvent[]][] = [
    ['event and data', 'event: event\ndata: {"a":1}\n\n', [{ type: 'event', data: '{"a":1}' }]],
    ['default type', 'data: x\n\n', [{ type: 'message', data: 'x' }]],
    ['no space after the colon', 'event:e\ndata:x\n\n', [{ type: 'e', data: 'x' }]],
    ['one space is dropped, the second kept', 'data:  x\n\n', [{ type: 'message', data: ' x' }]],
    ['several data lines', 'data: a\ndata: b\ndata:\n\n', [{ type: 'message', data: 'a\nb\n' }]],
    ['a colon in the data', 'data: a: b\n\n', [{ type: 'message', data: 'a: b' }]],
    ['empty data is an event', 'data\n\n', [{ type: 'message', data: '' }]],
    ['a type alone is none', 'event: e\n\ndata: x\n\n', [{ type: 'message', data: 'x' }]],
    ['comments', ': heartbeat\n\n:\n\ndata: x\n: in between\n\n', [{ type: 'message', data: 'x' }]],
    ['unknown fields', 'id: 7\nretry: 10\nfoo: bar\ndata: x\n\n', [{ type: 'message', data: 'x' }]],
    [
      'CRLF',
      'event: e\r\ndata: x\r\n\r\ndata: y\r\n\r\n',
      [
        { type: 'e', data: 'x' },
        { type: 'message', data: 'y' },
      ],
    ],
    [
      'CR',
      'event: e\rdata: x\r\rdata: y\r\r',
      [
        { type: 'e', data: 'x' },
        { type: 'message', data: 'y' },
      ],
    ],
    ['mixed ends', 'data: x\r\n\ndata: y\n\r\ndata: z\r\r\n', ['x', 'y', 'z'].map((data) => ({ type: 'message', data }))],
    ['byte order mark', '\ufeffdata: x\n\n', [{ type: 'message', data: 'x' }]],
    ['no empty line yet', 'data: x\n', []],
    ['no line end yet', 'data: x', []],
  ]
  test.each(cases)('%s', (_, stream, want) => {
    expect(parse(stream)).toEqual(want)
  })

  test.each(cases)('%s, cut anywhere', (_, stream, want) => {
    for (let i = 1; i < stream.length; i++) {
      for (let j = i; j < stream.length; j++) {
        expect(parse(stream.slice(0, i), stream.slice(i, j), stream.slice(j))).toEqual(want)
      }
    }
    expect(parse(...stream)).toEqual(want)
  })

  test.each([
    ['of an event', 'id: 7\ndata: x\n\n', '7'],
    ['without data', 'id: 7\n\n', '7'],
    ['not ended', 'id: 7\n\nid: 8\n', '7'],
    ['kept', 'id: 7\n\ndata: x\n\n', '7'],
    ['taken back', 'id: 7\n\nid:\n\n', ''],
    ['not valid', 'id: 7\n\nid: \0\n\n', '7'],
    ['none', 'data: x\n\n', 'first'],
  ])('the id: %s', (_, stream, want) => {
    const parser = new SSEParser(() => {}, 'first')
    parser.feed(stream)
    expect(parser.id).toBe(want)
  })

  test('a long line in many chunks takes linear time', () => {
    const chunk = 'x'.repeat(1000)
    const chunks = ['data: ', ...Array.from({ length: 5000 }, () => chunk), '\n\n']
    const began = performance.now()
    expect(parse(...chunks)[0]?.data.length).toBe(5_000_000)
    expect(performance.now() - began).toBeLessThan(2000)
  })
})

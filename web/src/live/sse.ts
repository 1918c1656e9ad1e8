/** One server-sent event. */
export interface ServerEvent {
  type: string
  data: string
}

/**
 * Parses a text/event-stream that arrives in pieces cut anywhere. EventSource would take a connection for each stream,
 * hence a parser of our own. The field `retry` is ignored.
 */
export class SSEParser {
  /** The position to go on from on a new connection. Events without data, which are not passed on, can set it too. */
  id: string
  private nextID: string
  /** Pieces of a line that has not ended. */
  private parts: string[] = []
  private afterCR = false
  private started = false
  private type = ''
  private data: string | undefined
  private readonly onEvent: (event: ServerEvent) => void

  constructor(onEvent: (event: ServerEvent) => void, id = '') {
    this.onEvent = onEvent
    this.id = this.nextID = id
  }

  /** Forgets what has come of a message: the stream begins anew on another connection. The id stays. */
  begin(): void {
    this.nextID = this.id
    this.parts = []
    this.afterCR = this.started = false
    this.type = ''
    this.data = undefined
  }

  feed(chunk: string): void {
    if (chunk === '') return
    if (!this.started) {
      this.started = true
      if (chunk.charCodeAt(0) === 0xfeff) chunk = chunk.slice(1)
    }
    // A CR at the end of a chunk has ended its line already; the LF of the pair may come with the next chunk.
    if (this.afterCR) {
      this.afterCR = false
      if (chunk.charCodeAt(0) === 10) chunk = chunk.slice(1)
    }

    let start = 0
    let lf = chunk.indexOf('\n')
    let cr = chunk.indexOf('\r')
    while (lf !== -1 || cr !== -1) {
      const isCR = cr !== -1 && (lf === -1 || cr < lf)
      const end = isCR ? cr : lf
      this.line(this.take(chunk.slice(start, end)))
      start = end + 1
      if (isCR) {
        if (start === chunk.length) this.afterCR = true
        else if (chunk.charCodeAt(start) === 10) start++
      }
      if (lf !== -1 && lf < start) lf = chunk.indexOf('\n', start)
      if (cr !== -1 && cr < start) cr = chunk.indexOf('\r', start)
    }
    if (start < chunk.length) this.parts.push(chunk.slice(start))
  }

  /** Ends the line that earlier chunks began. Pieces are joined once, so a long line takes linear time. */
  private take(tail: string): string {
    if (this.parts.length === 0) return tail
    const line = this.parts.join('') + tail
    this.parts = []
    return line
  }

  private line(line: string): void {
    if (line === '') {
      this.id = this.nextID
      if (this.data !== undefined) this.onEvent({ type: this.type || 'message', data: this.data })
      this.type = ''
      this.data = undefined
      return
    }
    const colon = line.indexOf(':')
    if (colon === 0) return // a comment
    const field = colon === -1 ? line : line.slice(0, colon)
    let value = ''
    if (colon !== -1) value = line.slice(line.charCodeAt(colon + 1) === 32 ? colon + 2 : colon + 1)
    if (field === 'data') this.data = this.data === undefined ? value : this.data + '\n' + value
    else if (field === 'event') this.type = value
    else if (field === 'id' && !value.includes('\0')) this.nextID = value
  }
}

import { Batcher } from './batcher'
import type { FromWorker, ToWorker } from './protocol'
import { EventStream } from './stream'

// The stream is read and parsed here, off the page's thread: a storm costs the page only the reduced rows.

interface Port {
  postMessage(message: FromWorker): void
  onmessage: ((message: MessageEvent<ToWorker>) => void) | null
}
const port = self as unknown as Port

const batcher = new Batcher((batch) => port.postMessage({ kind: 'batch', batch }))
let tokens: ((token: string | undefined) => void)[] = []
let pulse = 0

function open(namespace: string) {
  const stream = new EventStream({
    namespace,
    token: (stale) =>
      new Promise((resolve) => {
        tokens.push(resolve)
        port.postMessage({ kind: 'token', stale })
      }),
    handlers: {
      onOpen: () => batcher.begin(),
      onEvent: (event) => batcher.event(event),
      onDelete: (ref) => batcher.remove(ref),
      onSynced: () => batcher.sync(),
      onState: (state) => port.postMessage({ kind: 'state', state }),
      onBytes: () => {
        const at = Date.now()
        if (at - pulse < 1000) return
        pulse = at
        port.postMessage({ kind: 'pulse', at })
      },
    },
  })
  void stream.run()
}

port.onmessage = ({ data }) => {
  switch (data.kind) {
    case 'open':
      open(data.namespace)
      break
    case 'token':
      for (const resolve of tokens.splice(0)) resolve(data.token)
      break
    case 'ack':
      batcher.ack()
      break
    case 'watch':
      batcher.watch = data.key
      break
  }
}

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, start, stop, until } from './process.mjs'

/** What `make run` starts, at other addresses: a backend with an agent and sample checks, in a directory of its own. */
export class Demo {
  user = 'admin'
  password = 'lapwing-demo'
  dir = mkdtempSync(join(tmpdir(), 'lapwing-e2e-demo-'))
  log = join(this.dir, 'log')
  processes = []

  static async start() {
    const demo = new Demo()
    const [api, agents] = [await freePort(), await freePort()]
    demo.url = `http://127.0.0.1:${api}`
    demo.agents = `ws://127.0.0.1:${agents}`
    demo.run('demo', '--dir', join(demo.dir, 'data'), '--api-listen-address', `127.0.0.1:${api}`, '--agent-port', `${agents}`)
    await until('the demo', async () => (await fetch(`${demo.url}/ready`)).ok)
    return demo
  }

  /** Starts lapwing with a command line. */
  run(...args) {
    this.processes.push(start(args, { log: this.log }))
  }

  tail() {
    return readFileSync(this.log, 'utf8').split('\n').slice(-40).join('\n')
  }

  async stop() {
    for (const process of this.processes.reverse()) await stop(process)
    rmSync(this.dir, { recursive: true, force: true })
  }
}

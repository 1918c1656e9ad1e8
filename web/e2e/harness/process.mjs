import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, openSync } from 'node:fs'
import { createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

/** The program under test. */
export const binary = new URL('../../../bin/lapwing', import.meta.url).pathname

/** How long a process may take to end before it is killed, in ms. */
const patience = 20_000

const running = new Set()

// A test that is broken off leaves nothing behind.
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))

/** Starts lapwing with the environment's own settings left out, and its output in a file. */
export function start(args, { log, env = {} }) {
  const inherited = Object.entries(process.env).filter(([name]) => !/^(LAPWING|SENSU)_/.test(name))
  const file = openSync(log, 'a')
  const child = spawn(binary, args, { stdio: ['ignore', file, file], env: { ...Object.fromEntries(inherited), ...env } })
  closeSync(file)
  running.add(child)
  child.once('exit', () => running.delete(child))
  child.once('error', () => running.delete(child))
  return child
}

/** Ends a process, and waits until it has ended. */
export async function stop(child) {
  if (!running.has(child)) return
  const ended = once(child, 'exit')
  const timer = setTimeout(() => child.kill('SIGKILL'), patience)
  child.kill('SIGTERM')
  await ended
  clearTimeout(timer)
}

/** Waits until a condition holds, and returns its value. A condition that throws does not hold yet. */
export async function until(what, condition, timeout = 20_000) {
  const end = Date.now() + timeout
  for (;;) {
    let reason = ''
    try {
      const value = await condition()
      if (value) return value
    } catch (err) {
      reason = `: ${err.message}`
    }
    if (Date.now() > end) throw new Error(`${what} did not come within ${timeout / 1000} s${reason}`)
    await pause(25)
  }
}

/** A port without a listener. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

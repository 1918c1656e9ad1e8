import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, start, stop, until } from './process.mjs'

/** A backend with agents, all of them processes, in a directory of its own. */
export class Backend {
  user = 'admin'
  password = 'correct-horse-battery'
  key = randomUUID()
  dir = mkdtempSync(join(tmpdir(), 'lapwing-e2e-'))
  log = join(this.dir, 'backend.log')
  agents = []

  static async start() {
    const backend = new Backend()
    backend.apiPort = await freePort()
    backend.agentPort = await freePort()
    backend.url = `http://127.0.0.1:${backend.apiPort}`
    await backend.begin()
    return backend
  }

  /** Starts the process; also again, after end(). */
  async begin() {
    const process = start(
      [
        'backend',
        '--state-dir',
        join(this.dir, 'state'),
        '--api-listen-address',
        `127.0.0.1:${this.apiPort}`,
        '--agent-host',
        '127.0.0.1',
        '--agent-port',
        String(this.agentPort),
      ],
      {
        log: this.log,
        env: {
          LAPWING_BACKEND_CLUSTER_ADMIN_USERNAME: this.user,
          LAPWING_BACKEND_CLUSTER_ADMIN_PASSWORD: this.password,
          LAPWING_BACKEND_CLUSTER_ADMIN_API_KEY: this.key,
        },
      },
    )
    this.process = process
    await until('the backend', async () => {
      if (process.exitCode !== null) return true
      return (await fetch(`${this.url}/ready`)).ok
    })
    if (process.exitCode !== null) throw new Error(`the backend ended at once:\n${this.tail()}`)
  }

  end() {
    return stop(this.process)
  }

  /** Starts an agent that runs the checks of a subscription, and waits for its keepalive. */
  async agent(name, { subscriptions = ['linux'], labels = {} } = {}) {
    const dir = join(this.dir, name)
    this.agents.push(
      start(
        [
          'agent',
          '--name',
          name,
          '--backend-url',
          `ws://127.0.0.1:${this.agentPort}`,
          '--cache-dir',
          dir,
          '--subscriptions',
          subscriptions.join(','),
          '--batch-delay',
          '0s',
          '--retry-min',
          '100ms',
          '--retry-max',
          '500ms',
          '--disable-api',
          '--disable-sockets',
          '--statsd-disable',
          ...Object.entries(labels).flatMap(([key, value]) => ['--labels', `${key}=${value}`]),
        ],
        { log: `${dir}.log` },
      ),
    )
    await this.status(name, 'keepalive', 0)
  }

  /** Starts an agent with a command line as people have it. */
  run(args) {
    this.agents.push(
      start([...args, '--cache-dir', join(this.dir, 'cache'), '--disable-api', '--disable-sockets', '--statsd-disable'], {
        log: join(this.dir, 'agent.log'),
      }),
    )
  }

  switch(entity, check) {
    return join(this.dir, `${entity}.${check}.broken`)
  }

  /**
   * Makes a check that fails on an agent while a file is there: fail() and pass() switch it. The file has the status and
   * the output.
   */
  check(name, { subscriptions = ['linux'], ...more } = {}) {
    const file = this.switch('{{ .name }}', name) // the agent puts the name of its entity there
    return this.call('POST', '/api/core/v2/namespaces/default/checks', {
      metadata: { name, namespace: 'default' },
      command: `test -e ${file} || { echo ${name} is fine; exit 0; }; read status output < ${file}; echo "$output"; exit $status`,
      interval: 1,
      subscriptions,
      publish: true,
      ...more,
    })
  }

  /** Lets a check fail on an agent from its next run on, and waits until the backend knows. */
  async fail(entity, check, status = 2, output = `${check} is broken`) {
    this.break(entity, check, status, output)
    await this.status(entity, check, status)
  }

  /** Lets a check fail on an agent from its next run on. */
  break(entity, check, status = 2, output = `${check} is broken`) {
    writeFileSync(this.switch(entity, check), `${status} ${output}\n`)
  }

  async pass(entity, check) {
    rmSync(this.switch(entity, check), { force: true })
    await this.status(entity, check, 0)
  }

  event(entity, check) {
    return this.call('GET', `/api/core/v2/namespaces/default/events/${entity}/${check}`)
  }

  /** Waits until an event has a status. */
  status(entity, check, status) {
    return until(`status ${status} of ${check} on ${entity}`, async () => (await this.event(entity, check)).check.status === status)
  }

  /** Calls the API as the administrator. */
  async call(method, path, body) {
    const response = await fetch(this.url + path, {
      method,
      headers: { Authorization: `Key ${this.key}`, 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const answer = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer}`)
    return answer === '' ? undefined : JSON.parse(answer)
  }

  /** Makes a user with a cluster role. */
  async makeUser(username, password, role) {
    await this.call('POST', '/api/core/v2/users', { username, password, groups: [username] })
    await this.call('POST', '/api/core/v2/clusterrolebindings', {
      metadata: { name: username },
      role_ref: { type: 'ClusterRole', name: role },
      subjects: [{ type: 'Group', name: username }],
    })
  }

  /** Makes an API key of a user, which is its own name. */
  async grantKey(username) {
    const response = await fetch(`${this.url}/api/core/v2/apikeys`, {
      method: 'POST',
      headers: { Authorization: `Key ${this.key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ username }),
    })
    if (!response.ok) throw new Error(`grant a key: ${response.status} ${await response.text()}`)
    return { name: response.headers.get('Location')?.split('/').at(-1) ?? '' }
  }

  /** The end of the backend's log. */
  tail(lines = 40) {
    return readFileSync(this.log, 'utf8').trimEnd().split('\n').slice(-lines).join('\n')
  }

  async stop() {
    await Promise.all(this.agents.map(stop))
    await this.end()
    rmSync(this.dir, { recursive: true, force: true })
  }
}

/** The API as the tests use it to make things happen. */
export class API {
  static async signIn(credentials) {
    const api = new API()
    api.credentials = credentials
    api.made = new Set()
    await api.signIn()
    return api
  }

  async signIn() {
    const { url, user, password } = this.credentials
    const response = await fetch(`${url}/auth`, {
      headers: { Authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` },
    })
    if (!response.ok) throw new Error(`sign in: ${response.status} ${await response.text()}`)
    this.token = (await response.json()).access_token
  }

  async request(method, path, body) {
    const response = await fetch(this.credentials.url + path, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, 'Content-Type': 'application/json' },
      body: body && JSON.stringify(body),
    })
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
  }

  post(entity, check, status, output) {
    this.made.add(`${entity}/${check}`)
    return this.request('POST', '/api/core/v2/namespaces/default/events', {
      metadata: { namespace: 'default' },
      entity: { entity_class: 'proxy', metadata: { name: entity, namespace: 'default' } },
      check: {
        metadata: { name: check, namespace: 'default' },
        interval: 60,
        subscriptions: ['e2e'],
        status,
        output,
        executed: Math.floor(Date.now() / 1000),
      },
    })
  }

  remove(entity, check) {
    return this.request('DELETE', `/api/core/v2/namespaces/default/events/${entity}/${check}`)
  }

  /** Deletes what post() made. The mock backend knows no entities, so events are deleted by themselves as well. */
  async cleanUp() {
    for (const name of this.made) {
      const [entity, check] = name.split('/')
      await this.remove(entity, check).catch(() => {})
      await this.request('DELETE', `/api/core/v2/namespaces/default/entities/${entity}`).catch(() => {})
    }
  }
}

import { createHash, createSign, generateKeyPairSync, randomUUID } from 'node:crypto'
import { createServer } from 'node:http'

/**
 * An OpenID Connect provider on a loopback address. Its sign-in page asks for nothing: a browser on it is signed in with
 * the claims, or refused while deny is set.
 */
export class Provider {
  client = { id: 'lapwing', secret: randomUUID() }
  deny = false
  #codes = new Map()
  #keys = generateKeyPairSync('rsa', { modulusLength: 2048 })

  static async start(claims) {
    const provider = new Provider()
    provider.claims = claims
    provider.server = createServer((request, response) => void provider.#serve(request, response))
    await new Promise((done) => provider.server.listen(0, '127.0.0.1', done))
    provider.url = `http://127.0.0.1:${provider.server.address().port}`
    return provider
  }

  stop() {
    this.server.closeAllConnections()
    return new Promise((done) => this.server.close(done))
  }

  async #serve(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.url)
    const answer = (status, body) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
    switch (pathname) {
      case '/.well-known/openid-configuration':
        return answer(200, {
          issuer: this.url,
          authorization_endpoint: `${this.url}/authorize`,
          token_endpoint: `${this.url}/token`,
          jwks_uri: `${this.url}/keys`,
          scopes_supported: ['openid'],
          response_types_supported: ['code'],
          id_token_signing_alg_values_supported: ['RS256'],
        })
      case '/keys':
        return answer(200, { keys: [{ ...this.#keys.publicKey.export({ format: 'jwk' }), kid: '1', alg: 'RS256', use: 'sig' }] })
      case '/authorize': {
        const back = new URL(searchParams.get('redirect_uri'))
        back.searchParams.set('state', searchParams.get('state'))
        if (this.deny) {
          back.searchParams.set('error', 'access_denied')
        } else {
          const code = randomUUID()
          this.#codes.set(code, { nonce: searchParams.get('nonce'), challenge: searchParams.get('code_challenge') })
          back.searchParams.set('code', code)
        }
        return response.writeHead(302, { Location: back.href }).end()
      }
      case '/token': {
        let body = ''
        for await (const chunk of request) body += chunk
        const form = new URLSearchParams(body)
        const begun = this.#codes.get(form.get('code'))
        this.#codes.delete(form.get('code'))
        const challenge = createHash('sha256')
          .update(form.get('code_verifier') ?? '')
          .digest('base64url')
        if (begun?.challenge !== challenge) return answer(400, { error: 'invalid_grant' })
        return answer(200, { access_token: randomUUID(), token_type: 'Bearer', expires_in: 300, id_token: this.#token(begun.nonce) })
      }
      default:
        return answer(404, {})
    }
  }

  #token(nonce) {
    const now = Math.floor(Date.now() / 1000)
    const encode = (part) => Buffer.from(JSON.stringify(part)).toString('base64url')
    const text = `${encode({ alg: 'RS256', kid: '1' })}.${encode({ iss: this.url, aud: this.client.id, iat: now, exp: now + 600, nonce, ...this.claims })}`
    return `${text}.${createSign('RSA-SHA256').update(text).sign(this.#keys.privateKey, 'base64url')}`
  }
}

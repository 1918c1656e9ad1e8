// `npm run dev:mock`: the mock backend and the development server in one process.
import { startMock } from './mock.mjs'

const mock = await startMock({
  events: Number(process.env.MOCK_EVENTS ?? 1200),
  rate: Number(process.env.MOCK_RATE ?? 20),
})
process.env.LAPWING_URL = mock.url

const { createServer } = await import('vite')
const server = await createServer()
await server.listen()
server.printUrls()
console.log('  sign in as admin with P@ssw0rd!')

import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

declare const process: { env: Record<string, string | undefined> }

const backend = process.env.LAPWING_URL ?? 'http://127.0.0.1:8080'

export default defineConfig({
  plugins: [react()],
  build: {
    target: 'es2022',
    // The content security policy allows no inline scripts and no data: URLs but images, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        codeSplitting: {
          // The scripts of the first screen come in two files instead of sixty; libraries change less often than the page.
          // Its style sheets are one, in the order of their imports: the first names the order of the layers.
          groups: [
            { name: 'libraries', test: /node_modules.*(?<!\.css)$/, tags: ['$initial'], priority: 1 },
            { name: 'first', tags: ['$initial'] },
            // So does the list of events, with what other screens share with it.
            { name: 'events', test: /screens\/events\/EventsScreen/ },
          ],
        },
      },
    },
  },
  server: {
    proxy: {
      '/api': { target: backend, ws: true },
      '/auth': backend,
      '/version': backend,
    },
  },
  test: {
    include: ['src/**/*.test.ts'],
    environment: 'node',
    css: true,
  },
})

import { describe, expect, test } from 'vitest'
import css from './tokens.css?raw'

const [light = '', dark = '', high = '', highDark = ''] = css.split(/\n(?=\[data-)/)

function colours(block: string): Record<string, string> {
  return Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map((m) => [m[1], m[2]]))
}

function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((i) => {
    const c = parseInt(hex.slice(i, i + 2), 16) / 255
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

function contrast(a: string, b: string): number {
  const [high = 0, low = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x)
  return (high + 0.05) / (low + 0.05)
}

const statuses = ['ok', 'warning', 'critical', 'unknown', 'silenced']
const grounds = ['bg', 'surface', 'raised', 'hover', 'selected']
const pairs: [string, string, number][] = [
  ...['text', 'muted'].flatMap((ink) => grounds.map((ground): [string, string, number] => [ink, ground, 4.5])),
  ...statuses.flatMap((ink) =>
    ['surface', 'hover', 'selected', `${ink}-soft`].map((ground): [string, string, number] => [ink, ground, 4.5]),
  ),
  ...statuses.map((ground): [string, string, number] => ['text', `${ground}-soft`, 4.5]),
  ['on-accent', 'accent', 4.5],
  // Not text: 3 is enough.
  ...statuses.map((ground): [string, string, number] => ['on-mark', ground, 3]),
  ['line-strong', 'surface', 3],
  ['line-strong', 'bg', 3],
  ['focus', 'surface', 3],
  ['focus', 'hover', 3],
]

describe.each([
  ['light', colours(light)],
  ['dark', colours(dark)],
  ['high contrast, light', { ...colours(light), ...colours(high) }],
  ['high contrast, dark', { ...colours(dark), ...colours(highDark) }],
])('%s', (_, palette) => {
  test.each(pairs)('%s on %s is at least %d', (ink, ground, least) => {
    const [a, b] = [palette[ink], palette[ground]]
    expect(a, ink).toBeDefined()
    expect(b, ground).toBeDefined()
    expect(contrast(a ?? '', b ?? '')).toBeGreaterThanOrEqual(least)
  })
})

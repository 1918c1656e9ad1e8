import type { Group } from '../store/row'
import css from './icons.module.css'

export type Mark = Exclude<Group, 'silenced'>

export function markOf(status: number): Mark {
  return status === 0 ? 'ok' : status === 1 ? 'warning' : status === 2 ? 'critical' : 'unknown'
}

// One outline each, so that a status is visible without colour: circle, triangle, octagon, square.
const outlines: Record<Mark, string> = {
  ok: 'M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1z',
  warning: 'M7 1.7a1.2 1.2 0 0 1 2 0l6.7 11.5a1.2 1.2 0 0 1-1 1.8H1.3a1.2 1.2 0 0 1-1-1.8z',
  critical: 'M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z',
  unknown: 'M3.5 1.5h9a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-9a2 2 0 0 1-2-2v-9a2 2 0 0 1 2-2z',
}

const glyphs: Record<Mark, string> = {
  ok: 'M4.8 8.2l2.3 2.3 4.2-4.6',
  warning: 'M8 5.6v3.8M8 12.1v.1',
  critical: 'M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8',
  unknown: 'M6 6.2a2 2 0 1 1 2.9 1.8c-.6.3-.9.7-.9 1.3M8 11.5v.1',
}

/** A status by colour and shape. Always beside a word, so hidden from screen readers. */
export function StatusMark({ mark, size = 16 }: { mark: Mark; size?: number }) {
  return (
    <svg className={`${css.mark} ${css[mark]}`} viewBox="0 0 16 16" width={size} height={size} aria-hidden="true">
      <path className={css.outline} d={outlines[mark]} />
      <path className={css.glyph} d={glyphs[mark]} />
    </svg>
  )
}

const lines = {
  muted: 'M3 3l10 10M5 6.5V7c0 2-.8 3-1.5 4h7M11 8.5V6.5a3 3 0 0 0-4.6-2.5M7 13.2h2',
  close: 'M4 4l8 8M12 4l-8 8',
  up: 'M4 10l4-4 4 4',
  down: 'M4 6l4 4 4-4',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.4 10.4l3.1 3.1',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.5M13 2.5v2.7h-2.7',
  keys: 'M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5.5 9.5h5',
  out: 'M6 2.5H3.5v11H6M7 8h6.5M11 5.5L13.5 8 11 10.5',
}

export function Icon({ name, size = 16 }: { name: keyof typeof lines; size?: number }) {
  return (
    <svg className={css.icon} viewBox="0 0 16 16" width={size} height={size} aria-hidden="true">
      <path d={lines[name]} />
    </svg>
  )
}

export function Logo({ size = 26 }: { size?: number }) {
  return (
    <svg className={css.logo} viewBox="0 0 32 32" width={size} height={size} aria-hidden="true">
      <path d="M3 3c4.5.2 8.6 2 11.6 5.2A9.6 9.6 0 0 1 25.2 13l4.3 1.6c.6.2.6 1 0 1.2l-4.2 1.3C24.6 23.6 20 29 12.6 29H8.4c-.8 0-1.2-1-.6-1.5 3.2-2.9 4.7-6.3 4.5-10.1C9.7 11.6 6.6 7.6 2.6 3.9 2.2 3.5 2.4 3 3 3z" />
      <circle cx="19.8" cy="13.8" r="1.7" />
    </svg>
  )
}

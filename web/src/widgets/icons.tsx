import css from './icons.module.css'

export type Mark = 'critical' | 'warning' | 'unknown' | 'ok'

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
  ended: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2zM5 8h6',
  close: 'M4 4l8 8M12 4l-8 8',
  up: 'M4 10l4-4 4 4',
  down: 'M4 6l4 4 4-4',
  left: 'M10 4l-4 4 4 4',
  right: 'M6 4l4 4-4 4',
  closer: 'M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.4 10.4l3.1 3.1M7 5v4M5 7h4',
  search: 'M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.4 10.4l3.1 3.1',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.5M13 2.5v2.7h-2.7',
  keys: 'M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5.5 9.5h5',
  now: 'M2 9.5h2.5L6.5 4l3 8 2-4.5H14',
  events: 'M2.5 4h11M2.5 8h11M2.5 12h7',
  entities: 'M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01',
  checks: 'M3 8.2l3 3 7-7',
  queue: 'M2.5 4.5h5v3h-5zM2.5 9.5h5v3h-5zM10 6h3.5M10 11h3.5',
  pipeline: 'M2 8h3M6.5 5.5h3v5h-3zM11 8h3',
  metrics: 'M2.5 2.5v11h11M5 10.5l2.5-3 2 2 3.5-4.5',
  reports: 'M2.5 13.5h11M4 11V8M8 11V3M12 11V6',
  services: 'M8 2.5v3M4 13.5v-3h8v3M8 5.5v5M2.5 13.5h3M10.5 13.5h3',
  cluster:
    'M8 2.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM3.5 9.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM12.5 9.5a2 2 0 1 1 0 4 2 2 0 0 1 0-4zM7 6.3L4.7 9.7M9 6.3l2.3 3.4',
  audit: 'M8 4.5V8l2.5 1.5M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z',
  config: 'M4 2.5h5.5L12 5v8.5H4zM9 2.5V5.5h3M6 8.5h4M6 11h4',
  access: 'M8 2.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zM3 13.5c.4-3 2.4-4.5 5-4.5s4.6 1.5 5 4.5',
  oncall: 'M4 2.5h8v11H4zM7 11.5h2',
  sun: 'M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1',
  moon: 'M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  bell: 'M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM6.7 14h2.6',
  check: 'M3.5 8.5l3 3 6-7',
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  link: 'M6.5 9.5l3-3M7.5 4.5l1-1a2.8 2.8 0 0 1 4 4l-1 1M8.5 11.5l-1 1a2.8 2.8 0 0 1-4-4l1-1',
  full: 'M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10',
  star: 'M8 2l1.8 3.8 4.2.6-3 3 .7 4.1L8 11.5l-3.7 2 .7-4.1-3-3 4.2-.6z',
  out: 'M6 2.5H3.5v11H6M7 8h6.5M11 5.5L13.5 8 11 10.5',
}

export type IconName = keyof typeof lines

export const iconNames = Object.keys(lines) as IconName[]

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
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

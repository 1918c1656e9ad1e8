import type { ReactNode } from 'react'
import { Moment } from '../app/time'
import css from './Facts.module.css'

/** A titled part of a detail. */
export function Section({ title, tools, children }: { title: ReactNode; tools?: ReactNode; children: ReactNode }) {
  return (
    <section className={css.section}>
      <header>
        <h3>{title}</h3>
        {tools}
      </header>
      {children}
    </section>
  )
}

/** Names and values. Those without a value are left out. */
export function Facts({ facts }: { facts: [string, ReactNode][] }) {
  return (
    <dl className={css.facts}>
      {facts
        .filter(([, value]) => value !== undefined && value !== null && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  )
}

/** Labels or annotations; later sources win. */
export function Pairs({ title, sources }: { title: string; sources: (Record<string, string> | null | undefined)[] }) {
  const pairs = Object.entries(Object.assign({}, ...sources) as Record<string, string>).sort()
  if (pairs.length === 0) return null
  return (
    <Section title={title}>
      <ul className={css.pairs}>
        {pairs.map(([name, value]) => (
          <li key={name}>
            <span>{name}</span> {value}
          </li>
        ))}
      </ul>
    </Section>
  )
}

/** Text as a program wrote it. */
export function Output({ children }: { children: string }) {
  return (
    <pre className={css.output} tabIndex={0}>
      {children}
    </pre>
  )
}

/** A moment in Unix seconds; nothing for 0. */
export function moment(unix: number | undefined): ReactNode {
  return unix ? <Moment at={unix} /> : undefined
}

export function list(names: readonly string[] | null | undefined): string | undefined {
  return names && names.length > 0 ? names.join(', ') : undefined
}

import type { ReactNode } from 'react'
import css from './Screen.module.css'

interface Props {
  title: string
  /** Beside the title: search, filters, buttons. */
  bar?: ReactNode
  /** Opened beside the content; over it on a narrow window. */
  detail?: ReactNode
  /** The content has its own edges: a table or a map. */
  flush?: boolean
  children: ReactNode
}

/** The frame of a screen: its name and tools above, its content below, and the detail of what is selected beside it. */
export function Screen({ title, bar, detail, flush = false, children }: Props) {
  const open = detail !== undefined && detail !== null && detail !== false
  return (
    <section className={css.screen} aria-label={title} data-detail={open}>
      <header className={css.bar}>
        <h1>{title}</h1>
        {bar}
      </header>
      <div className={css.content} data-flush={flush}>
        {children}
      </div>
      {open && detail}
    </section>
  )
}

/** Pushes what follows in a bar to its end. */
export function Space() {
  return <span className={css.space} />
}

/** A block with a title on a screen. */
export function Panel({ title, tools, children }: { title?: ReactNode; tools?: ReactNode; children: ReactNode }) {
  return (
    <section className={css.panel}>
      {(title !== undefined || tools !== undefined) && (
        <header>
          <h2>{title}</h2>
          {tools}
        </header>
      )}
      {children}
    </section>
  )
}

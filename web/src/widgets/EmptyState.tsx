import type { ReactNode } from 'react'
import css from './EmptyState.module.css'

/** Says why there is nothing to see, and what to do. */
export function EmptyState({ title, help, children }: { title: string; help?: ReactNode; children?: ReactNode }) {
  return (
    <div className={css.empty} role="status">
      <h2>{title}</h2>
      {help !== undefined && <p>{help}</p>}
      {children}
    </div>
  )
}

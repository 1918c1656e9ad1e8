import { useMemo } from 'react'
import { text } from '../text'
import css from './DiffView.module.css'
import { diffLines } from './document'

const signs = { same: ' ', added: '+', removed: '−', gap: ' ' }

/** The lines that differ between two texts. */
export function DiffView({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => diffLines(before, after), [before, after])
  if (lines.length === 0) return <p className={css.none}>{text.editor.same}</p>
  return (
    <pre className={css.diff} tabIndex={0} aria-label={text.editor.diff}>
      {lines.map(({ kind, text: line }, i) => (
        <span key={i} data-kind={kind}>
          {signs[kind]} {line}
          {'\n'}
        </span>
      ))}
    </pre>
  )
}

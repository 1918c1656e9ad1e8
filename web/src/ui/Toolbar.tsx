import { useCallback, useEffect, useRef, useState, type Ref } from 'react'
import { text } from '../text'
import { Icon } from './icons'
import css from './Toolbar.module.css'

interface Props {
  ref: Ref<HTMLInputElement>
  query: string
  onQuery: (query: string) => void
  incidentsFirst: boolean
  onIncidentsFirst: (on: boolean) => void
  shown: number
  total: number
  loading: boolean
}

export function Toolbar(p: Props) {
  return (
    <div className={css.toolbar} role="search">
      <SearchBox ref={p.ref} query={p.query} onQuery={p.onQuery} />
      <label className={css.toggle}>
        <input
          type="checkbox"
          role="switch"
          checked={p.incidentsFirst}
          onChange={(e) => p.onIncidentsFirst(e.target.checked)}
        />
        <span className={css.track} aria-hidden="true" />
        {text.incidentsFirst}
      </label>
      <span className={css.shown} data-testid="shown">
        {p.loading && p.total === 0 ? '' : text.shown(p.shown, p.total)}
      </span>
    </div>
  )
}

/** Typing shows at once; the list follows when the typing pauses. */
function SearchBox({ ref, query, onQuery }: Pick<Props, 'ref' | 'query' | 'onQuery'>) {
  const [value, setValue] = useState(query)
  const latest = useRef(onQuery)
  const pending = useRef<{ query: string; timer: ReturnType<typeof setTimeout> }>(undefined)

  const flush = useCallback(() => {
    const waiting = pending.current
    if (!waiting) return
    clearTimeout(waiting.timer)
    pending.current = undefined
    latest.current(waiting.query)
  }, [])

  useEffect(() => {
    latest.current = onQuery
  })
  useEffect(() => setValue(query), [query])
  useEffect(() => flush, [flush]) // keeps the last input when the namespace changes

  function set(next: string, delay: number) {
    setValue(next)
    clearTimeout(pending.current?.timer)
    pending.current = { query: next, timer: setTimeout(flush, delay) }
  }

  return (
    <div className={css.search}>
      <Icon name="search" />
      <input
        ref={ref}
        type="text"
        inputMode="search"
        enterKeyHint="search"
        aria-label={text.search}
        placeholder={text.searchHint}
        value={value}
        onChange={(e) => set(e.target.value, 120)}
        onBlur={flush}
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
      />
      {value === '' ? (
        <kbd aria-hidden="true">/</kbd>
      ) : (
        <button aria-label={text.clearSearch} title={text.clearSearch} onClick={() => set('', 0)}>
          <Icon name="close" size={14} />
        </button>
      )}
    </div>
  )
}

import { CloseButton, Pill, TextInput } from '@mantine/core'
import { useHotkeys } from '@mantine/hooks'
import { useEffect, useRef, useState } from 'react'
import { isSelector, parseQuery, withoutChip } from '../search/query'
import { text } from '../text'
import { Icon } from './icons'
import css from './SearchBox.module.css'

interface Props {
  value: string
  onChange: (value: string) => void
}

/** Time without a key after which what was typed is searched for, in ms. */
const settled = 250

/** A text to search for; the conditions of a selector are chips as well, so that each can be removed. */
export function SearchBox({ value, onChange }: Props) {
  const input = useRef<HTMLInputElement>(null)
  const [typed, setTyped] = useState(value)
  const [before, setBefore] = useState(value)
  if (value !== before) { // the address has changed
    setBefore(value)
    setTyped(value)
  }
  useEffect(() => {
    if (typed === value) return
    const timer = setTimeout(() => onChange(typed), settled)
    return () => clearTimeout(timer)
  })
  useHotkeys([
    ['/', () => input.current?.select()],
  ])
  const set = (next: string) => {
    setTyped(next)
    onChange(next)
  }
  const { chips } = parseQuery(value)
  return (
    <div className={css.box}>
      <TextInput
        ref={input}
        type="search"
        size="sm"
        aria-label={text.search}
        placeholder={text.searchHint}
        leftSection={<Icon name="search" />}
        rightSection={typed !== '' && <CloseButton size="sm" aria-label={text.clearSearch} onClick={() => set('')} />}
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter') set(typed)
          if (event.key !== 'Escape') return
          if (typed === '') input.current?.blur()
          else set('')
        }}
        spellCheck={false}
        autoComplete="off"
      />
      {isSelector(value) && chips.length > 1 && (
        <div className={css.chips}>
          {chips.map((chip, i) => (
            <Pill
              key={chip}
              size="sm"
              withRemoveButton
              removeButtonProps={{ 'aria-label': text.list.removePart(chip), 'aria-hidden': false, tabIndex: 0 }}
              onRemove={() => set(withoutChip(value, i))}
            >
              {chip}
            </Pill>
          ))}
        </div>
      )}
    </div>
  )
}

import { Autocomplete, CloseButton, Pill, Text, type ComboboxItem } from '@mantine/core'
import { useEffect, useRef, useState } from 'react'
import type { Suggestion } from '../search/fields'
import { isSelector, isUnfinished, parseQuery, withoutChip } from '../search/query'
import { text } from '../text'
import { Icon } from './icons'
import { useKeys } from './use-keys'
import css from './SearchBox.module.css'

interface Props {
  value: string
  onChange: (value: string) => void
  placeholder?: string
  /** What may come at the end of the text that is being typed. */
  suggestions?: (typed: string) => readonly Suggestion[]
  /** Called with each key, before the text counts. */
  onType?: (typed: string) => void
}

/** ms after the last key until a text counts. */
const settled = 250

/** Searches by words or by a selector, whose conditions are shown as chips below: both are the same text. "/" moves here. */
export function SearchBox({ value, onChange, placeholder = text.searchHint, suggestions, onType }: Props) {
  const input = useRef<HTMLInputElement>(null)
  const [typed, setTyped] = useState(value)
  const [before, setBefore] = useState(value)
  if (value !== before) {
    // the address has changed
    setBefore(value)
    setTyped(value)
  }
  useEffect(() => {
    if (typed === value || isUnfinished(typed)) return
    const timer = setTimeout(() => onChange(typed), settled)
    return () => clearTimeout(timer)
  })
  useKeys([['/', () => input.current?.select()]])
  const set = (next: string) => {
    setTyped(next)
    onChange(next)
    onType?.(next)
  }
  const offered = suggestions?.(typed) ?? []
  const { chips } = parseQuery(value)
  return (
    <div className={css.box}>
      <Autocomplete
        ref={input}
        type="search"
        size="sm"
        aria-label={text.search}
        placeholder={placeholder}
        leftSection={<Icon name="search" />}
        rightSection={typed !== '' && <CloseButton size="sm" aria-label={text.clearSearch} onClick={() => set('')} />}
        value={typed}
        data={offered.map(({ text: whole }) => whole)}
        filter={({ options }) => options}
        renderOption={({ option }) => <Offer {...offered.find(({ text: whole }) => whole === (option as ComboboxItem).value)} />}
        onChange={(next) => {
          setTyped(next)
          onType?.(next)
        }}
        onOptionSubmit={(next) => {
          setTyped(next)
          onType?.(next)
          requestAnimationFrame(() => input.current?.setSelectionRange(next.length, next.length))
        }}
        maxDropdownHeight={320}
        comboboxProps={{ shadow: 'md' }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && !event.defaultPrevented) {
            onChange(typed)
            input.current?.blur() // keys are the list's again
          }
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

function Offer({ label, help }: Partial<Suggestion>) {
  return (
    <span className={css.offer}>
      <code>{label}</code>
      {help !== undefined && (
        <Text size="xs" c="dimmed">
          {help}
        </Text>
      )}
    </span>
  )
}

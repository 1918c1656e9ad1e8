import { useEffect, useRef, useState } from 'react'
import { text } from '../text'
import { copyText } from './copy'
import css from './CopyButton.module.css'

interface Props {
  value: () => string
  label?: string
}

export function CopyButton({ value, label = text.copy }: Props) {
  const [said, setSaid] = useState<string>()
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
  useEffect(() => () => clearTimeout(timer.current), [])

  async function copy() {
    setSaid((await copyText(value())) ? text.copied : text.copyFailed)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => setSaid(undefined), 1600)
  }

  return (
    <button className={css.button} onClick={() => void copy()}>
      <span aria-live="polite">{said ?? label}</span>
    </button>
  )
}

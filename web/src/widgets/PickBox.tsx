import css from './PickBox.module.css'

interface Props {
  /** Names what it ticks. */
  label: string
  picked: boolean
  onPick: () => void
}

/** The box that ticks a row: one element, because a list draws dozens of rows at once. */
export function PickBox({ label, picked, onPick }: Props) {
  return <input type="checkbox" className={css.box} aria-label={label} checked={picked} onChange={onPick} />
}

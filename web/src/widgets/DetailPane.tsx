import { ActionIcon, Group } from '@mantine/core'
import type { ReactNode } from 'react'
import { text } from '../text'
import css from './DetailPane.module.css'
import { Icon, StatusMark, type IconName, type Mark } from './icons'

interface Props {
  /** Names what is open; another name starts the pane at its top. */
  id: string
  label: string
  title: ReactNode
  subtitle?: ReactNode
  mark?: Mark | undefined
  tools?: ReactNode
  onClose: () => void
  /** Opens the one before or after in the list. */
  onStep?: (by: number) => void
  children: ReactNode
}

/** What is selected in a list, beside it. On a narrow window it covers the screen. */
export function DetailPane({ id, label, title, subtitle, mark, tools, onClose, onStep, children }: Props) {
  return (
    <aside className={css.pane} aria-label={label}>
      <div className={css.head} data-mark={mark}>
        <div className={css.title}>
          {mark !== undefined && <StatusMark mark={mark} size={22} />}
          <h2>
            {title}
            {subtitle !== undefined && <span>{subtitle}</span>}
          </h2>
        </div>
        <Group gap={2} wrap="nowrap">
          {tools}
          {onStep && <Tool icon="up" label={text.previous} onClick={() => onStep(-1)} />}
          {onStep && <Tool icon="down" label={text.next} onClick={() => onStep(1)} />}
          <Tool icon="close" label={text.close} onClick={onClose} />
        </Group>
      </div>
      <div className={css.scroll} key={id} tabIndex={-1}>
        {children}
      </div>
    </aside>
  )
}

function Tool({ icon, label, onClick }: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <ActionIcon variant="subtle" color="gray" size="lg" aria-label={label} title={label} onClick={onClick}>
      <Icon name={icon} />
    </ActionIcon>
  )
}

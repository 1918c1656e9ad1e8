import { useImperativeHandle, useRef, type Ref } from 'react'
import { text } from '../text'
import { Icon } from './icons'
import css from './KeyHelp.module.css'

export interface KeyHelpHandle {
  open: () => void
}

export function KeyHelp({ ref }: { ref: Ref<KeyHelpHandle> }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useImperativeHandle(ref, () => ({ open: () => dialog.current?.showModal() }), [])
  const close = () => dialog.current?.close()
  return (
    <dialog ref={dialog} className={css.dialog} aria-label={text.keys} onClick={(e) => e.target === dialog.current && close()}>
      <div className={css.content}>
        <h2>{text.keys}</h2>
        <button className={css.close} onClick={close} aria-label={text.close}>
          <Icon name="close" />
        </button>
        <dl>
          {text.keyHelp.map(([keys, what]) => (
            <div key={what}>
              <dt>
                {keys.map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </div>
    </dialog>
  )
}

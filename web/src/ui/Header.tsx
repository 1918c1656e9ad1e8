import type { Feed } from '../live/feed'
import { health } from '../live/health'
import { text } from '../text'
import css from './Header.module.css'
import { Icon, Logo } from './icons'
import { useFeedVersion, useNow } from './use-feed'

interface Props {
  inert: boolean
  user: string
  namespace: string
  namespaces: string[]
  feed: Feed | undefined
  onNamespace: (namespace: string) => void
  onHelp: () => void
  onSignOut: () => void
}

export function Header({ inert, user, namespace, namespaces, feed, onNamespace, onHelp, onSignOut }: Props) {
  const known = namespace === '-' || namespaces.includes(namespace) ? namespaces : [namespace, ...namespaces]
  return (
    <header className={css.header} inert={inert}>
      <span className={css.brand}>
        <Logo />
        <b>{text.name}</b>
      </span>
      <label className={css.namespace}>
        <span className="visually-hidden">{text.namespace}</span>
        <select value={namespace} onChange={(e) => onNamespace(e.target.value)}>
          <option value="-">{text.allNamespaces}</option>
          {known.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <Icon name="down" size={14} />
      </label>
      {feed && <Badge feed={feed} />}
      <button className={css.button} onClick={onHelp} title={text.keys} aria-label={text.keys} data-wide>
        <Icon name="keys" size={18} />
      </button>
      <button className={css.button} onClick={onSignOut} title={text.signedInAs(user)}>
        <span className={css.user}>{user}</span>
        <Icon name="out" />
        <span className="visually-hidden">{text.signOut}</span>
      </button>
    </header>
  )
}

function Badge({ feed }: { feed: Feed }) {
  useFeedVersion(feed)
  const now = useNow()
  const { stream, namespace, heard, lag, store } = feed
  const h = health({ stream, namespace, synced: store.synced, size: store.size, heard, lag, now })
  return (
    <span className={css.badge} data-tone={h.tone} title={h.help} data-testid="badge">
      <span className={css.dot} aria-hidden="true" />
      <span className={css.label}>{h.label}</span>
    </span>
  )
}

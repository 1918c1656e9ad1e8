import { useEffect, useRef, useState, type FormEvent } from 'react'
import type { SignInOption } from '../api/types'
import type { BrowserSignIn } from '../session/browser'
import { SignInError, type Session } from '../session/session'
import { text } from '../text'
import { Logo } from './icons'
import css from './SignIn.module.css'

export function SignIn({ session, browser }: { session: Session; browser: BrowserSignIn }) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState(() => browser.error && explain(browser.error))
  const [providers, setProviders] = useState<SignInOption[]>([])
  const user = useRef<HTMLInputElement>(null)
  const password = useRef<HTMLInputElement>(null)

  useEffect(() => {
    document.title = text.name
    user.current?.focus()
    void browser.providers().then(setProviders)
  }, [browser])

  async function submit(submitted: FormEvent) {
    submitted.preventDefault()
    setBusy(true)
    setError(undefined)
    try {
      await session.signIn(user.current?.value.trim() ?? '', password.current?.value ?? '')
    } catch (err) {
      setBusy(false)
      setError(explain(err))
      password.current?.select()
    }
  }

  return (
    <main className={css.page}>
      <form className={css.card} onSubmit={(e) => void submit(e)} aria-busy={busy}>
        <div className={css.brand}>
          <Logo size={48} />
          <h1>{text.signInTitle}</h1>
          <p>{text.tagline}</p>
        </div>
        {session.expired && !error && (
          <p className={css.note} role="status">
            {text.sessionEnded}
          </p>
        )}
        <label className={css.field}>
          <span>{text.username}</span>
          <input ref={user} name="username" autoComplete="username" autoCapitalize="none" spellCheck={false} required />
        </label>
        <label className={css.field}>
          <span>{text.password}</span>
          <input ref={password} name="password" type="password" autoComplete="current-password" required />
        </label>
        <div className={css.alert} role="alert">
          {error && <p className={css.error}>{error}</p>}
        </div>
        <button className={css.submit} disabled={busy}>
          {busy ? text.signingIn : text.signIn}
        </button>
        {providers.map(({ name, title }) => (
          <button key={name} type="button" className={css.provider} onClick={() => void browser.begin(name).then((url) => location.assign(url))}>
            {text.signInAt(title)}
          </button>
        ))}
      </form>
    </main>
  )
}

function explain(err: unknown): string {
  if (!(err instanceof SignInError)) return text.serverFailed(String(err))
  switch (err.reason) {
    case 'credentials':
      return text.wrongCredentials
    case 'network':
      return text.unreachable
    case 'server':
      return text.serverFailed(err.message)
  }
}

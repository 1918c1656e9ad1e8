import { Alert, Button, Paper, PasswordInput, Stack, TextInput, Title } from '@mantine/core'
import { useEffect, useRef, useState, type FormEvent } from 'react'
import type { SignInOption } from '../../api/types'
import { useApp } from '../../app/context'
import { text } from '../../text'
import { Logo } from '../../widgets/icons'
import { explain } from './explain'
import css from './SignIn.module.css'

/** ended: the last sign-in ended without the user. */
export function SignIn({ ended }: { ended: boolean }) {
  const { session, browser } = useApp()
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
      await session.signIn({ username: user.current?.value.trim() ?? '', password: password.current?.value ?? '' })
    } catch (err) {
      setBusy(false)
      setError(explain(err))
      password.current?.select()
    }
  }

  async function goTo(provider: string) {
    const { pathname, search, hash } = location
    location.assign(await browser.begin(provider, pathname + search + hash))
  }

  return (
    <main className={css.page}>
      <Paper component="form" className={css.card} withBorder shadow="md" radius="lg" onSubmit={(e) => void submit(e)} aria-busy={busy}>
        <div className={css.brand}>
          <Logo size={48} />
          <Title order={1} mt="sm">
            {text.signInTitle}
          </Title>
          <p>{text.tagline}</p>
        </div>
        {ended && error === undefined && (
          <Alert color="yellow" role="status">
            {text.sessionEnded}
          </Alert>
        )}
        <Stack gap="md">
          <TextInput
            ref={user}
            label={text.username}
            name="username"
            size="md"
            autoComplete="username"
            autoCapitalize="none"
            spellCheck={false}
            required
            withAsterisk={false}
          />
          <PasswordInput
            ref={password}
            label={text.password}
            name="password"
            size="md"
            autoComplete="current-password"
            required
            withAsterisk={false}
          />
        </Stack>
        <div className={css.alert} role="alert">
          {error !== undefined && <p className={css.error}>{error}</p>}
        </div>
        <Button type="submit" size="md" loading={busy}>
          {text.signIn}
        </Button>
        {providers.map(({ name, title }) => (
          <Button key={name} variant="default" size="md" onClick={() => void goTo(name)}>
            {text.signInAt(title)}
          </Button>
        ))}
      </Paper>
    </main>
  )
}

import { Alert, Button, Paper, Text, Title } from '@mantine/core'
import { useState } from 'react'
import { useApp } from '../../app/context'
import { text } from '../../text'
import { Logo } from '../../widgets/icons'
import { explain } from './explain'
import css from './SignIn.module.css'
import { SignIn } from './SignIn'

/**
 * Asks before the key of a link signs the browser in: a link that somebody else has made would show their wall, and other
 * people's eyes would believe it.
 */
export function WallLink() {
  const { session, browser } = useApp()
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<string>()
  const [refused, setRefused] = useState(false)
  if (refused || browser.key === undefined) return <SignIn ended={false} />
  const key = browser.key
  const show = () => {
    setBusy(true)
    session.signIn({ key }).then(
      () => (browser.key = undefined),
      (err: unknown) => {
        setBusy(false)
        setError(explain(err, text.wallLink.wrong))
      },
    )
  }
  return (
    <main className={css.page}>
      <Paper className={css.card} withBorder shadow="md" radius="lg" aria-busy={busy}>
        <div className={css.brand}>
          <Logo size={48} />
          <Title order={1} mt="sm">
            {text.wallLink.title}
          </Title>
        </div>
        <Text size="sm">{text.wallLink.help}</Text>
        {error !== undefined && (
          <Alert color="red" role="alert">
            {error}
          </Alert>
        )}
        <Button size="md" loading={busy} onClick={show} data-autofocus>
          {text.wallLink.show}
        </Button>
        <Button
          size="md"
          variant="default"
          onClick={() => {
            browser.key = undefined
            setRefused(true)
          }}
        >
          {text.wallLink.signIn}
        </Button>
      </Paper>
    </main>
  )
}

import { SignInError } from '../../session/session'
import { text } from '../../text'

/** Why a sign-in failed, for people. wrong is what to say of credentials that the backend does not know. */
export function explain(err: unknown, wrong: string = text.wrongCredentials): string {
  if (!(err instanceof SignInError)) return text.serverFailed(String(err))
  switch (err.reason) {
    case 'credentials':
      return wrong
    case 'network':
      return text.unreachable
    case 'server':
      return text.serverFailed(err.message)
  }
}

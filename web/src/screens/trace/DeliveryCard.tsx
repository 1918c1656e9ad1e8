import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { ApiError } from '../../api/client'
import { kinds } from '../../api/definitions'
import type { Attempt, DeadLetter, Delivery, EventFilter, Handler, Step } from '../../api/types'
import { useApp } from '../../app/context'
import { Moment } from '../../app/time'
import { definitionsKey } from '../../live/definitions'
import { text } from '../../text/trace'
import { Output } from '../../widgets/Facts'
import { plainOutput } from '../events/present'
import { axisOf, barOn, builtIn, routeOf, verdictMark, type Axis, type VerdictMark } from './present'
import { ResultMark } from './ResultMark'
import css from './DeliveryCard.module.css'

interface Props {
  delivery: Delivery
  /** It is dead, and this is its dead letter. */
  letter?: DeadLetter | undefined
  tools?: ReactNode
}

/** What became of an event in one workflow, from its receipt to what comes next. */
export function DeliveryCard({ delivery, letter, tools }: Props) {
  const {
    verdict,
    reason,
    handler = '',
    steps,
    attempts,
    received = 0,
    escalation,
    step = 0,
    contact = '',
    repeats = 0,
    last = 0,
  } = delivery
  const axis = axisOf(delivery)
  const tried = attempts ?? []
  const next = tried.at(-1)?.next ?? 0
  const name = handler === '' ? text.noHandler : handler
  const words = text.verdicts[verdict] ?? verdict
  return (
    <article className={css.card} aria-label={`${name}: ${words}`} data-mark={verdictMark(verdict)}>
      <header>
        <ResultMark mark={verdictMark(verdict)} size={18} />
        <h3>
          <b>{words}</b> {name}
          {routeOf(delivery) !== '' && <span>{routeOf(delivery)}</span>}
          {escalation && <span>{text.escalation(escalation, step, contact)}</span>}
        </h3>
        {tools}
      </header>
      {reason && <p className={css.reason}>{reason}</p>}
      <ol className={css.steps}>
        {received > 0 && <Row mark="ok" title={text.received} when={<Moment at={received / 1000} />} axis={axis} at={received} />}
        {(steps ?? []).map((one, i) => (
          <StepRow key={i} step={one} namespace={delivery.namespace} axis={axis} />
        ))}
        {handler !== '' && verdict !== 'filtered' && <HandlerRow namespace={delivery.namespace} name={handler} />}
        {tried.map((attempt, i) => (
          <AttemptRow key={i} n={i + 1} attempt={attempt} axis={axis} />
        ))}
        <Row mark={verdictMark(verdict)} title={text.nextIs} {...(next > 0 && verdict === 'waiting' ? { axis, at: next } : {})}>
          {next > 0 && verdict === 'waiting' ? (
            <>
              {text.nextAttempt}: <Moment at={next / 1000} />
            </>
          ) : (
            text.next[verdict]
          )}
          {letter && (
            <>
              {' '}
              <Link to="/queues" search={{ ns: delivery.namespace, tab: 'letters', letter: `${letter.namespace}/${letter.id}` }}>
                {text.letter}
              </Link>
            </>
          )}
        </Row>
      </ol>
      {repeats > 0 && (
        <p className={css.repeats}>
          {text.repeats(repeats)} <Moment at={last / 1000} />
        </p>
      )}
    </article>
  )
}

interface RowProps {
  mark: VerdictMark
  title: ReactNode
  when?: ReactNode
  axis?: Axis
  /** Its place on the axis, in Unix ms. */
  at?: number
  millis?: number
  children?: ReactNode
}

function Row({ mark, title, when, axis, at, millis = 0, children }: RowProps) {
  const bar = axis && at ? barOn(axis, at, millis) : undefined
  return (
    <li className={css.row} data-mark={mark}>
      <ResultMark mark={mark} size={14} />
      <div className={css.what}>
        <div className={css.line}>
          <span className={css.title}>{title}</span>
          {when !== undefined && <span className={css.when}>{when}</span>}
        </div>
        {children !== undefined && <div className={css.more}>{children}</div>}
      </div>
      <span className={css.track} aria-hidden="true" data-empty={bar === undefined}>
        {bar && <i style={{ left: `${bar.left}%`, width: `${bar.width}%` }} />}
      </span>
    </li>
  )
}

function StepRow({ step, namespace, axis }: { step: Step; namespace: string; axis: Axis }) {
  const { kind, name = '', verdict = '', expression, saw, error, micros = 0, at = 0 } = step
  return (
    <Row
      mark={verdictMark(verdict)}
      title={
        <>
          {text.kinds[kind] ?? kind} <b>{name}</b>: {text.steps[verdict] ?? verdict}
        </>
      }
      when={at > 0 ? <Moment at={at / 1000} /> : micros > 0 ? text.micros(micros) : undefined}
      axis={axis}
      {...(at > 0 ? { at } : {})}
    >
      {expression ? <code className={css.code}>{expression}</code> : kind === 'filter' && <Expressions namespace={namespace} name={name} />}
      {(saw ?? []).length > 0 && (
        <dl className={css.saw} aria-label={text.saw}>
          {saw?.map((one, i) => (
            <div key={i}>
              <dt>{one.name}</dt>
              <dd>{one.value}</dd>
            </div>
          ))}
        </dl>
      )}
      {error && <p className={css.error}>{error}</p>}
    </Row>
  )
}

/** The expressions of a filter that a trace does not repeat: it has one only, or all passed. */
function Expressions({ namespace, name }: { namespace: string; name: string }) {
  const { definitions } = useApp()
  const filter = useQuery({
    queryKey: definitionsKey('filters', namespace, name),
    enabled: name !== '' && !builtIn.has(name),
    retry: false,
    queryFn: () => definitions.one<EventFilter>(kinds.filters, namespace, name),
  })
  const { action, expressions } = filter.data ?? {}
  if (!expressions || expressions.length === 0) return null
  return (
    <code className={css.code} title={text.asNow}>
      {action}: {expressions.join(' && ')}
    </code>
  )
}

function HandlerRow({ namespace, name }: { namespace: string; name: string }) {
  const { definitions } = useApp()
  const handler = useQuery({
    queryKey: definitionsKey('handlers', namespace, name),
    retry: false,
    queryFn: () => definitions.one<Handler>(kinds.handlers, namespace, name),
  })
  const gone = handler.error instanceof ApiError && handler.error.missing
  const { type, command, webhook, socket } = handler.data ?? {}
  const what = command ?? webhook?.url ?? (socket?.host ? `${socket.host}:${socket.port}` : undefined)
  return (
    <Row
      mark={gone ? 'critical' : 'ok'}
      title={
        <>
          {text.handler} <b>{name}</b>
          {type && `, ${type}`}
        </>
      }
    >
      {gone
        ? text.undefinedNow
        : handler.error
          ? handler.error.message
          : what && (
              <code className={css.code} title={text.asNow}>
                {what}
              </code>
            )}
    </Row>
  )
}

function AttemptRow({ n, attempt, axis }: { n: number; attempt: Attempt; axis: Axis }) {
  const { at, millis, result, status = 0, output = '', error = '' } = attempt
  const printed = plainOutput(output)
  const code = status >= 100 && status < 600 ? text.http(status) : status !== 0 ? text.exit(status) : undefined
  return (
    <Row
      mark={verdictMark(result === 'failed' ? 'error' : result)}
      title={
        <>
          {text.attempt(n)}: <b>{text.results[result] ?? result}</b>
          {code && `, ${code}`}, {text.took(millis)}
        </>
      }
      when={<Moment at={at / 1000} />}
      axis={axis}
      at={at}
      millis={millis}
    >
      {printed !== '' && <Output>{printed}</Output>}
      {error !== '' && <p className={css.error}>{error}</p>}
    </Row>
  )
}

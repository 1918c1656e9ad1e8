import { Link } from '@tanstack/react-router'
import type { Delivery } from '../../api/types'
import { text } from '../../text/pipelines'
import { StatusMark } from '../../widgets/icons'
import type { VerdictMark } from '../trace/present'
import { ResultMark } from '../trace/ResultMark'
import { statesOf, type Flow, type Node, type NodeState } from './flow'
import css from './FlowView.module.css'
import type { PipelinesSearch } from './search'

interface Props {
  namespace: string
  flows: readonly Flow[]
  /** What a dry run did, by the name of the workflow. */
  runs: ReadonlyMap<string, Delivery>
  search: PipelinesSearch
}

const marks: Partial<Record<NodeState, VerdictMark>> = { pass: 'ok', reached: 'ok', deny: 'ended', error: 'critical' }

/** The ways of an event through filters and a mutator to handlers; with a dry run, how far it came. */
export function FlowView({ namespace, flows, runs, search }: Props) {
  if (flows.length === 0) return <p className={css.dim}>{text.noWorkflows}</p>
  return (
    <ul className={css.flows} aria-label={text.flow}>
      {flows.map((flow, i) => {
        const run = runs.get(flow.workflow)
        const states = run && statesOf(flow, run)
        const to = { namespace, search }
        return (
          <li key={i} className={css.flow}>
            {flow.workflow !== '' && <h4>{flow.workflow}</h4>}
            <ol>
              <li className={css.node}>
                <span>{text.event}</span>
              </li>
              {flow.filters.map((filter, n) => (
                <NodeView key={n} node={filter} state={states?.filters[n]} {...to} />
              ))}
              {flow.filters.length === 0 && (
                <li className={css.node} data-plain="true">
                  <span>{text.noFilters}</span>
                </li>
              )}
              {flow.mutator && <NodeView node={flow.mutator} state={states?.mutator} {...to} />}
              {flow.handler ? (
                <NodeView node={flow.handler} state={states?.handler} {...to} />
              ) : (
                <li className={css.node} data-missing="true">
                  <span>{text.noHandler}</span>
                </li>
              )}
            </ol>
            {run?.reason && <p className={css.dim}>{run.reason}</p>}
          </li>
        )
      })}
    </ul>
  )
}

function NodeView({
  node,
  state,
  namespace,
  search,
}: {
  node: Node
  state: NodeState | undefined
  namespace: string
  search: PipelinesSearch
}) {
  const kind = text.one[node.kind]
  const mark = state && marks[state]
  return (
    <li className={css.node} data-kind={node.kind} data-missing={node.missing} data-state={state}>
      <span className={css.kind}>
        {kind}
        {node.builtIn && `, ${text.builtIn}`}
      </span>
      {node.builtIn || node.missing ? (
        <b title={node.missing ? text.undefinedHelp(kind, node.name) : undefined}>{node.name}</b>
      ) : (
        <Link to="/pipelines" search={{ ...search, tab: node.kind, open: `${namespace}/${node.name}` }}>
          {node.name}
        </Link>
      )}
      {node.missing && (
        <span className={css.missing}>
          <StatusMark mark="critical" size={12} /> {text.undefined}
        </span>
      )}
      {state && (
        <span className={css.state}>
          {mark && <ResultMark mark={mark} size={12} />} {text.states[state]}
        </span>
      )}
    </li>
  )
}

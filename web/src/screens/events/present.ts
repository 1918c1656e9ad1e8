import type { Check, CheckHistory } from '../../api/types'

export type PastResult = Required<CheckHistory>

/** The check's last results, oldest first. */
export function pastResults(check: Check): PastResult[] {
  return (check.history ?? []).map(({ status = 0, executed = 0 }) => ({ status, executed }))
}

/** When the check took its present status, from its history; undefined if that is too short. */
export function statusSince(check: Check): { at: number; atLeast: boolean } | undefined {
  const history = pastResults(check)
  const status = check.status ?? 0
  let first = history.length
  while (first > 0 && history[first - 1]?.status === status) first--
  const start = history[first]
  if (!start || start.executed <= 0) return undefined
  // The run may be older than the history, which keeps the last results only.
  return { at: start.executed, atLeast: first === 0 && (check.occurrences ?? 0) > history.length }
}

/** Output without terminal control sequences and other characters that do not print. */
export function plainOutput(output: string): string {
  return output
    .replace(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\^_])/g, '')
    .replace(/\r\n?/g, '\n')
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, '')
    .trimEnd()
}

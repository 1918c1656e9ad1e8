import type { SensuEvent } from '../api/types'
import type { RowData } from './event'

/** The page to the worker, which follows one namespace for all its life. */
export type ToWorker =
  | { kind: 'open'; namespace: string }
  /** Answers a `token` request; without a token the sign-in is over. */
  | { kind: 'token'; token: string | undefined }
  /** The page has taken in the last batch. Batches grow while it is busy and never queue up. */
  | { kind: 'ack' }
  /** The event whose full form the page wants with every change. */
  | { kind: 'watch'; key: string | undefined }

export interface Batch {
  /** Counts connections: rows of an earlier one that were not sent again are gone. */
  epoch: number
  rows: RowData[]
  deleted: string[]
  watched: SensuEvent | undefined
  /** The backend has sent every current event; what follows is live. */
  synced: boolean
  /** Date.now() at which the oldest change of the batch arrived. */
  received: number
}

export type StreamState =
  | { phase: 'connecting' }
  | { phase: 'loading' }
  | { phase: 'live' }
  | { phase: 'waiting'; until: number; reason: string }
  /** A retry is useless until the user acts. */
  | { phase: 'denied'; reason: string }

/** The worker to the page. */
export type FromWorker =
  | { kind: 'state'; state: StreamState }
  | { kind: 'batch'; batch: Batch }
  | { kind: 'token'; stale: string | undefined }
  /** Bytes arrived, at least a heartbeat; at most once a second. */
  | { kind: 'pulse'; at: number }

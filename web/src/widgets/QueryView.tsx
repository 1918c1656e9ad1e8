import { Alert, Button, Skeleton } from '@mantine/core'
import type { UseQueryResult } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { ApiError } from '../api/client'
import { text } from '../text'
import { EmptyState } from './EmptyState'

interface Props<T> {
  query: UseQueryResult<T>
  /** Shown until the first answer. */
  rows?: number
  children: (data: T) => ReactNode
}

/** What a query has brought. It keeps the last answer while a later question fails, and says so. */
export function QueryView<T>({ query, rows = 6, children }: Props<T>) {
  const { data, error, isPending, refetch, isFetching } = query
  if (data === undefined && error instanceof ApiError && error.denied) return <EmptyState title={text.noAccess} help={error.message} />
  if (data === undefined && error instanceof ApiError && error.missing) return <EmptyState title={text.missing} help={error.message} />
  return (
    <>
      {error && (
        <Alert color="red" role="alert" m={data === undefined ? 'md' : 'xs'}>
          {text.loadFailed(error.message)}{' '}
          <Button variant="subtle" size="compact-sm" loading={isFetching} onClick={() => void refetch()}>
            {text.tryAgain}
          </Button>
        </Alert>
      )}
      {data !== undefined ? children(data) : isPending && !error && <Rows n={rows} />}
    </>
  )
}

function Rows({ n }: { n: number }) {
  return (
    <div aria-busy="true" aria-label={text.loading(0)} role="status">
      {Array.from({ length: n }, (_, i) => (
        <Skeleton key={i} height={18} m="md" width={`${90 - ((i * 17) % 40)}%`} />
      ))}
    </div>
  )
}

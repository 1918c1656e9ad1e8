import { useQuery, type UseQueryResult } from '@tanstack/react-query'
import { useState } from 'react'
import { unwrap } from '../api/client'
import { rateOf, withSample, type Sample } from '../api/rate'
import type { ClusterStatus } from '../api/types'
import { useApp } from './context'

/** How the backends stand, asked every five seconds while the user may know. */
export function useCluster(enabled = true): UseQueryResult<ClusterStatus> {
  const { api } = useApp()
  return useQuery({
    queryKey: ['cluster'],
    enabled,
    queryFn: () => unwrap(api.GET('/api/lapwing/v1/cluster')),
    refetchInterval: 5000,
    retry: false,
  })
}

/** Events that all backends receive a second; undefined until answers of some seconds have come. */
export function useRate({ data, dataUpdatedAt }: UseQueryResult<ClusterStatus>): number | undefined {
  const [seen, setSeen] = useState<{ at: number; samples: readonly Sample[] }>({ at: 0, samples: [] })
  // An answer may leave no sample, so its time stands apart: each answer is taken once.
  if (data && seen.at !== dataUpdatedAt) setSeen({ at: dataUpdatedAt, samples: withSample(seen.samples, data, dataUpdatedAt) })
  return rateOf(seen.samples)
}

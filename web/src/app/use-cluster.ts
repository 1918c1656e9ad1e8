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
  const [samples, setSamples] = useState<readonly Sample[]>([])
  if (data && samples.at(-1)?.at !== dataUpdatedAt) setSamples(withSample(samples, data, dataUpdatedAt))
  return rateOf(samples)
}

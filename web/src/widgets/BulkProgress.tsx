import { Alert, Progress, Stack, Text } from '@mantine/core'
import type { BulkReport } from '../api/types'
import { text } from '../text'

const t = text.bulk

/** Objects that are named at most. */
const named = 20

/** How far an act on many objects is. */
export function BulkProgress({ report: { done, denied, failed }, matched }: { report: BulkReport; matched: number }) {
  return (
    <Stack gap={4} role="status">
      <Progress value={(100 * (done + denied + failed)) / Math.max(1, matched)} aria-label={t.progress} />
      <Text size="sm">{t.report(done, denied, failed)}</Text>
    </Stack>
  )
}

/** The objects that were denied or failed, each with why. */
export function BulkRefused({ report }: { report: BulkReport }) {
  return (
    <Alert color="red" title={t.notAll}>
      <Stack gap={2}>
        {(report.objects ?? []).slice(0, named).map(({ namespace, name, result, error }) => (
          <Text key={`${namespace}/${name}`} size="sm">
            {name}: {error || result}
          </Text>
        ))}
      </Stack>
    </Alert>
  )
}

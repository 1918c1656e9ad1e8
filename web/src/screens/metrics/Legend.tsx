import { Table } from '@mantine/core'
import { figuresOf, shortValue, type MetricSeries } from '../../api/graphite'
import { metricsText as t } from '../../text/metrics'
import { lineOf } from '../../widgets/Plot'
import { useTimeCursor } from '../../widgets/time-cursor'
import css from './MetricsScreen.module.css'

/** Which line is which, with its figures and its value at the cursor. */
export function Legend({ series, sync }: { series: readonly MetricSeries[]; sync: string }) {
  const at = useTimeCursor(sync)
  return (
    <div className={css.figures} role="region" aria-label={t.legend} tabIndex={0}>
      <Table verticalSpacing={4} fz="xs" className={css.legend}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t.series}</Table.Th>
            {[t.min, t.mean, t.max, t.last].map((name) => (
              <Table.Th key={name} ta="right">
                {name}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {series.map((one, i) => {
            const figures = figuresOf(one)
            const { colour, dash } = lineOf(i)
            const value = at === undefined ? undefined : valueAt(one, at)
            return (
              <Table.Tr key={`${i}-${one.target}`}>
                <Table.Td>
                  <svg width="20" height="8" aria-hidden="true">
                    <line
                      x1="0"
                      x2="20"
                      y1="4"
                      y2="4"
                      strokeWidth="2"
                      strokeDasharray={dash?.join(' ')}
                      style={{ stroke: `var(${colour})` }}
                    />
                  </svg>{' '}
                  {one.target}
                  {value !== undefined && <b> {shortValue(value)}</b>}
                </Table.Td>
                {(['min', 'mean', 'max', 'last'] as const).map((name) => (
                  <Table.Td key={name} ta="right">
                    {figures ? shortValue(figures[name]) : t.noValue}
                  </Table.Td>
                ))}
              </Table.Tr>
            )
          })}
        </Table.Tbody>
      </Table>
    </div>
  )
}

/** The newest value at a time or before it. */
function valueAt({ points }: MetricSeries, at: number): number | undefined {
  let found: number | undefined
  for (const [value, time] of points) {
    if (time > at) break
    found = value ?? undefined
  }
  return found
}

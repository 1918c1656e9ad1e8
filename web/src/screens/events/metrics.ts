import type { EventSeries } from '../../api/types'

/** Charts and lines that are drawn at most: a check may have thousands of series. */
export const mostCharts = 6
export const mostLines = 8
/** Charts that are shown before the user chooses. */
const firstCharts = 3

/** The series of a metric. */
export interface Metric {
  name: string
  /** Those that are drawn. */
  series: EventSeries[]
  /** How many there are. */
  total: number
}

/** The metrics of a check by name, each with its first series. */
export function metricsOf(series: readonly EventSeries[]): Metric[] {
  const byName = new Map<string, Metric>()
  for (const one of series) {
    const metric = byName.get(one.name) ?? { name: one.name, series: [], total: 0 }
    byName.set(one.name, metric)
    metric.total++
    if (metric.series.length < mostLines) metric.series.push(one)
  }
  return [...byName.values()]
}

/** The metrics that are shown: the chosen ones; of a check that has none of them, the first. */
export function shownMetrics(metrics: readonly Metric[], chosen: readonly string[] | undefined): Metric[] {
  const found = metrics.filter(({ name }) => chosen?.includes(name)).slice(0, mostCharts)
  return found.length > 0 ? found : metrics.slice(0, firstCharts)
}

/** What tells a series from others of its metric: the tags that differ. */
export function seriesLabel({ name, tags }: EventSeries): string {
  const own = Object.entries(tags ?? {}).filter(([tag]) => !['name', 'namespace', 'entity', 'check'].includes(tag))
  return own.length === 0 ? name : own.map(([tag, value]) => `${tag}=${value}`).join(' ')
}

import { MultiSelect } from '@mantine/core'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { align, render, shortValue } from '../../api/graphite'
import type { EventSeries } from '../../api/types'
import { useApp } from '../../app/context'
import { metricChartsText as t } from '../../text/metric-charts'
import { Section } from '../../widgets/Facts'
import { Plot } from '../../widgets/Plot'
import { QueryView } from '../../widgets/QueryView'
import css from './Timeline.module.css'
import { metricsOf, mostCharts, mostLines, seriesLabel, shownMetrics } from './metrics'

interface Props {
  series: readonly EventSeries[]
  from: number
  until: number
  /** The time as in the address. */
  time: string
  /** Names of the metrics that the user has chosen. */
  chosen: readonly string[] | undefined
  onChoose: (names: readonly string[] | undefined) => void
  onZoom: (from: number, until: number) => void
  /** Of the cursor that the band has, too. */
  sync: string
}

/** Points of a line: a plot has no more pixels. */
const points = 400

/** A check's metrics on the time axis of its timeline. */
export default function MetricCharts({ series, from, until, time, chosen, onChoose, onZoom, sync }: Props) {
  const { session } = useApp()
  const metrics = metricsOf(series)
  const shown = shownMetrics(metrics, chosen)
  const targets = shown.flatMap((metric) => metric.series.map(({ target }) => target))
  const query = useQuery({
    queryKey: ['event-metrics', targets, time, Math.floor(from / 10), Math.floor(until / 10)],
    enabled: targets.length > 0,
    queryFn: async () => {
      const found = await render(session.fetch, { targets, from, until, points })
      return new Map(found.map((one) => [one.target, one]))
    },
    placeholderData: keepPreviousData,
  })
  return (
    <Section title={t.title} tools={<span className={css.hint}>{t.count(shown.length, metrics.length)}</span>}>
      {metrics.length > 1 && (
        <MultiSelect
          size="xs"
          mb="sm"
          aria-label={t.choose}
          data={metrics.map(({ name, total }) => ({ value: name, label: total > 1 ? `${name} (${total})` : name }))}
          value={shown.map(({ name }) => name)}
          maxValues={mostCharts}
          limit={100}
          searchable
          clearable={chosen !== undefined}
          clearButtonProps={{ 'aria-label': t.first }}
          onChange={(names) => onChoose(names.length === 0 ? undefined : names)}
        />
      )}
      <QueryView query={query} rows={3}>
        {(found) =>
          shown.map((metric) => {
            const lines = metric.series.flatMap((one) => {
              const line = found.get(one.target)
              return line ? [{ ...line, label: seriesLabel(one) }] : []
            })
            const { times, values } = align(lines)
            return (
              <figure key={metric.name} className={css.chart}>
                <figcaption>
                  <b>{metric.name}</b>
                  {metric.total > mostLines && <span>{t.some(mostLines, metric.total)}</span>}
                  <Link
                    to="/explore"
                    search={{ target: targetsOf(metric.name, metric.series), time }}
                    aria-label={t.exploreOne(metric.name)}
                  >
                    {t.explore}
                  </Link>
                </figcaption>
                {times.length === 0 ? (
                  <p className={css.hint}>{t.nothing}</p>
                ) : (
                  <Plot
                    label={t.chart(metric.name)}
                    times={times}
                    series={lines.map(({ label }, i) => ({ label, values: values[i] ?? [] }))}
                    height={130}
                    sync={sync}
                    from={from}
                    to={until}
                    format={shortValue}
                    onZoom={onZoom}
                  />
                )}
              </figure>
            )
          })
        }
      </QueryView>
    </Section>
  )
}

/** All series of a metric in one target. */
function targetsOf(name: string, [first]: readonly EventSeries[]): string[] {
  const { entity = '', check = '', namespace = '' } = first?.tags ?? {}
  const expressions = [`name=${name}`, `namespace=${namespace}`, `entity=${entity}`, `check=${check}`]
  return [`seriesByTag(${expressions.map((one) => `'${one}'`).join(',')})`]
}

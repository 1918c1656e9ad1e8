import { useMantineColorScheme } from '@mantine/core'
import { useElementSize, useMergedRef } from '@mantine/hooks'
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { usePreferences } from '../app/preferences'
import css from './Plot.module.css'

export interface Series {
  label: string
  /** A value for each time; null where there is none. */
  values: readonly (number | null)[]
}

interface Props {
  label: string
  /** Unix seconds, ascending. */
  times: readonly number[]
  series: readonly Series[]
  height?: number
  /** Plots with the same key move their cursors together. */
  sync?: string
  /** Bounds of the time axis in Unix seconds, so that it matches what is beside it. */
  from?: number
  to?: number
  /** Called with the times that were selected by dragging. */
  onZoom?: (from: number, to: number) => void
  format?: (value: number) => string
}

/** Colours of series: differ in lightness, too, for people who do not see all hues. */
const colours = ['--series-1', '--series-2', '--series-3', '--series-4', '--series-5', '--series-6', '--series-7', '--series-8']
const dashes: (number[] | undefined)[] = [undefined, [6, 3], [2, 3]]

/** Lines over time. */
export function Plot({ label, times, series, height = 180, sync, from, to, onZoom, format }: Props) {
  const { ref: measured, width } = useElementSize<HTMLDivElement>()
  const element = useRef<HTMLDivElement>(null)
  const ref = useMergedRef(measured, element)
  const { colorScheme } = useMantineColorScheme()
  const { contrast, time } = usePreferences()
  const zoom = useRef(onZoom)
  zoom.current = onZoom
  const labels = series.map((one) => one.label).join('\n')
  const data = [times, ...series.map(({ values }) => values)] as unknown as uPlot.AlignedData
  const plot = useRef<uPlot>(undefined)
  const newest = useRef(data)
  newest.current = data

  useEffect(() => {
    const place = element.current
    if (!place || width === 0) return
    const style = getComputedStyle(document.documentElement)
    const colour = (name: string) => style.getPropertyValue(name).trim()
    const axis = { stroke: colour('--muted'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: '12px ui-sans-serif, system-ui' }
    const made = new uPlot(
      {
        width, height,
        ...(time === 'utc' ? { tzDate: (at: number) => uPlot.tzDate(new Date(at * 1000), 'UTC') } : {}),
        cursor: { drag: { x: true, y: false, setScale: false }, ...(sync ? { sync: { key: sync } } : {}) },
        legend: { live: true },
        scales: { x: { time: true, ...(from !== undefined && to !== undefined ? { range: [from, to] } : {}) } },
        axes: [axis, { ...axis, size: 64, ...(format ? { values: (_: uPlot, values: number[]) => values.map(format) } : {}) }],
        series: [
          {},
          ...series.map((one, i): uPlot.Series => ({
            label: one.label,
            stroke: colour(colours[i % colours.length] as string),
            width: 1.5,
            points: { show: times.length < 40 },
            ...(dashes[Math.floor(i / colours.length) % dashes.length] ? { dash: dashes[Math.floor(i / colours.length) % dashes.length] as number[] } : {}),
            ...(format ? { value: (_: uPlot, value: number | null) => (value === null ? '–' : format(value)) } : {}),
          })),
        ],
        hooks: {
          setSelect: [
            (u) => {
              const { left, width: selected } = u.select
              if (selected > 4) zoom.current?.(u.posToVal(left, 'x'), u.posToVal(left + selected, 'x'))
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
            },
          ],
        },
      },
      newest.current,
      place,
    )
    plot.current = made
    return () => {
      plot.current = undefined
      made.destroy()
    }
  }, [width, height, labels, sync, from, to, time, colorScheme, contrast, format])

  useEffect(() => {
    plot.current?.setData(newest.current, from === undefined)
  })

  return <div ref={ref} className={css.plot} role="img" aria-label={label} style={{ minHeight: height }} />
}

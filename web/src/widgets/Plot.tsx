import { useMantineColorScheme } from '@mantine/core'
import { useElementSize, useMergedRef } from '@mantine/hooks'
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { usePreferences } from '../app/preferences'
import css from './Plot.module.css'
import { cursorOf, plotEdges } from './time-cursor'

export interface Series {
  label: string
  /** A value for each time; null where there is none, undefined where the line goes on. */
  values: readonly (number | null | undefined)[]
}

interface Props {
  label: string
  /** Unix seconds, ascending. */
  times: readonly number[]
  series: readonly Series[]
  height?: number
  /** Plots, and bands beside them, with the same key move their cursors together. */
  sync?: string
  /** Bounds of the time axis in Unix seconds, so that it matches what is beside it. */
  from?: number
  to?: number
  /** Called with the times that were selected by dragging. */
  onZoom?: (from: number, to: number) => void
  format?: (value: number) => string
  /** The values at the cursor below the plot; default true. */
  legend?: boolean
}

/** Colours of series: differ in lightness, too, for people who do not see all hues. */
const colours = ['--series-1', '--series-2', '--series-3', '--series-4', '--series-5', '--series-6', '--series-7', '--series-8']
const dashes: (number[] | undefined)[] = [undefined, [6, 3], [2, 3]]

/** How the line of a series is drawn. */
export function lineOf(series: number): { colour: string; dash: number[] | undefined } {
  return { colour: colours[series % colours.length] as string, dash: dashes[Math.floor(series / colours.length) % dashes.length] }
}

// Times by 24 hours, as elsewhere on the page; each with what it says at a new year and a new day, as uPlot wants it.
const times24 = [
  [86_400 * 365, '{YYYY}', null, null, null, null, null, null, 1],
  [86_400 * 28, '{MMM}', '\n{YYYY}', null, null, null, null, null, 1],
  [86_400, '{D} {MMM}', '\n{YYYY}', null, null, null, null, null, 1],
  [60, '{HH}:{mm}', '\n{D} {MMM}', null, '\n{D} {MMM}', null, null, null, 1],
  [1, ':{ss}', '\n{D} {MMM} {HH}:{mm}', null, '\n{D} {MMM} {HH}:{mm}', null, '\n{HH}:{mm}', null, 1],
] as unknown as uPlot.Axis.Values

/** Lines over time. */
export function Plot({ label, times, series, height = 180, sync, from, to, onZoom, format, legend = true }: Props) {
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
    const cursor = sync === undefined ? undefined : cursorOf(sync)
    const style = getComputedStyle(document.documentElement)
    const colour = (name: string) => style.getPropertyValue(name).trim()
    const axis = {
      stroke: colour('--muted'),
      grid: { stroke: colour('--line'), width: 1 },
      ticks: { stroke: colour('--line'), width: 1 },
      font: '12px ui-sans-serif, system-ui',
    }
    const made = new uPlot(
      {
        width,
        height,
        ...(time === 'utc' ? { tzDate: (at: number) => uPlot.tzDate(new Date(at * 1000), 'UTC') } : {}),
        padding: [null, plotEdges.right, null, null],
        cursor: { y: false, drag: { x: true, y: false, setScale: false } },
        legend: { show: legend, live: true },
        scales: { x: { time: true, ...(from !== undefined && to !== undefined ? { range: [from, to] } : {}) } },
        axes: [
          { ...axis, values: times24 },
          { ...axis, size: plotEdges.left, ...(format ? { values: (_: uPlot, values: number[]) => values.map(format) } : {}) },
        ],
        series: [
          { value: '{D} {MMM} {YYYY} {HH}:{mm}:{ss}' },
          ...series.map((one, i): uPlot.Series => {
            const line = lineOf(i)
            return {
              label: one.label,
              stroke: colour(line.colour),
              width: 1.5,
              points: { show: times.length < 40 },
              ...(line.dash ? { dash: line.dash } : {}),
              ...(format ? { value: (_: uPlot, value: number | null | undefined) => (value == null ? '–' : format(value)) } : {}),
            }
          }),
        ],
        hooks: {
          setCursor: [
            (u) => {
              const { left = -1 } = u.cursor
              cursor?.set(left < 0 ? undefined : u.posToVal(left, 'x'), u)
            },
          ],
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
    const unfollow = cursor?.subscribe((at, by) => {
      if (by !== made) made.setCursor(at === undefined ? { left: -10, top: -10 } : { left: made.valToPos(at, 'x'), top: 0 }, false)
    })
    return () => {
      unfollow?.()
      plot.current = undefined
      made.destroy()
    }
  }, [width, height, labels, sync, from, to, time, colorScheme, contrast, format, legend])

  useEffect(() => {
    plot.current?.setData(newest.current)
  })

  return <div ref={ref} className={css.plot} role="img" aria-label={label} style={{ minHeight: height }} />
}

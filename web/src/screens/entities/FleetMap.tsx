import { useElementSize, useMergedRef } from '@mantine/hooks'
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react'
import type { EntityMap } from '../../api/types'
import { entitiesText as t } from '../../text/entities'
import { useListKeys } from '../../widgets/use-list-keys'
import css from './FleetMap.module.css'
import { cellAt, cellOf, layoutOf, moved, stepOf, visible, type Cell, type Layout } from './map-layout'
import { classes } from './present'

interface Props {
  map: EntityMap
  zoom: string | undefined
  titled: boolean
  /** Groups of several namespaces are told apart. */
  namespaces: boolean
  titleOf: (value: string) => string
  /** Key of the entity whose detail is open. */
  selected: string | undefined
  onOpen: (key: string | undefined) => void
}

const keysOfMap = ['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End']

const stateOf = ({ worst }: Cell) => (worst === undefined ? '' : t.worst[classes[worst] ?? 'none'])

/** Every entity as a cell. Colour and shape tell its worst event, and a sign where there is room for it. */
export function FleetMap({ map, zoom, titled, namespaces, titleOf, selected, onOpen }: Props) {
  const { ref: measured, width, height } = useElementSize<HTMLDivElement>()
  const scroller = useRef<HTMLDivElement>(null)
  const ref = useMergedRef(measured, scroller)
  const [top, setTop] = useState(0)
  const [at, setAt] = useState(0)
  const [pointed, setPointed] = useState<number>()
  const step = stepOf(zoom, map.total)
  const groups = useMemo(() => map.groups ?? [], [map])
  const layout = useMemo(() => layoutOf(groups, width, step, titled), [groups, width, step, titled])
  const cursor = cellOf(layout, Math.min(at, layout.total - 1))
  const shown = (pointed === undefined ? undefined : cellOf(layout, pointed)) ?? cursor
  useListKeys([['Escape', () => onOpen(undefined), { preventDefault: false }]])
  const go = (place: number) => {
    setAt(place)
    setPointed(undefined)
    const cell = cellOf(layout, place)
    const box = scroller.current
    if (!cell || !box) return
    if (cell.y < box.scrollTop) box.scrollTop = cell.y - 30
    else if (cell.y + step > box.scrollTop + box.clientHeight) box.scrollTop = cell.y + step - box.clientHeight + 10
  }
  const open = (cell: Cell | undefined) => cell && onOpen(`${cell.namespace}/${cell.name}`)
  const pointOf = (event: { clientX: number; clientY: number; currentTarget: Element }) => {
    const box = event.currentTarget.getBoundingClientRect()
    return cellAt(layout, event.clientX - box.left, event.clientY - box.top)
  }
  return (
    <div className={css.map}>
      <div ref={ref} className={css.scroller} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <div className={css.inner} style={{ height: layout.height }}>
          <Picture layout={layout} top={top} width={width} height={height} />
          {titled &&
            visible(layout, top, top + height).map(({ group, top: y }) => (
              <h2 key={`${group.value} ${group.namespace}`} className={css.title} style={{ transform: `translateY(${y}px)` }}>
                {titleOf(group.value)} <span>{t.pointed(t.count(group.names?.length ?? 0), namespaces ? group.namespace : '', '')}</span>
              </h2>
            ))}
          <div
            className={css.cells}
            role="listbox"
            aria-label={t.map}
            aria-describedby="map-help"
            aria-activedescendant={cursor && 'map-cell'}
            tabIndex={0}
            onPointerMove={(event) => setPointed(pointOf(event)?.place)}
            onPointerLeave={() => setPointed(undefined)}
            onClick={(event) => {
              const cell = pointOf(event)
              if (cell) setAt(cell.place)
              open(cell)
            }}
            onKeyDown={(event) => {
              if (keysOfMap.includes(event.key)) {
                event.preventDefault()
                go(moved(layout, cursor?.place ?? 0, event.key))
              } else if (event.key === 'Enter' || event.key === ' ') {
                event.preventDefault()
                open(cursor)
              }
            }}
          >
            {cursor && (
              <span
                id="map-cell"
                className={css.cursor}
                role="option"
                aria-selected={`${cursor.namespace}/${cursor.name}` === selected}
                aria-label={t.pointed(cursor.name, namespaces ? cursor.namespace : '', stateOf(cursor))}
                aria-setsize={layout.total}
                aria-posinset={cursor.place + 1}
                style={{ width: step, height: step, transform: `translate(${cursor.x}px, ${cursor.y}px)` }}
              />
            )}
          </div>
        </div>
      </div>
      <p className={css.pointed}>
        {shown ? (
          <>
            <b>{shown.name}</b> {t.pointed('', namespaces ? shown.namespace : '', stateOf(shown))}
          </>
        ) : null}
        <span id="map-help">{t.mapHelp}</span>
      </p>
    </div>
  )
}

// A canvas keeps the colours that it was drawn with, so it must be drawn anew when the page has others.
const lookNow = () => `${document.documentElement.dataset.mantineColorScheme} ${document.documentElement.dataset.contrast}`

function followLook(changed: () => void): () => void {
  const observer = new MutationObserver(changed)
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ['data-mantine-color-scheme', 'data-contrast'] })
  return () => observer.disconnect()
}

/** The cells that are on the screen. */
function Picture({ layout, top, width, height }: { layout: Layout; top: number; width: number; height: number }) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const look = useSyncExternalStore(followLook, lookNow)
  useEffect(() => {
    const element = canvas.current
    const context = element?.getContext('2d')
    if (!element || !context || width === 0) return
    const ratio = devicePixelRatio || 1
    element.width = Math.round(width * ratio)
    element.height = Math.round(height * ratio)
    context.scale(ratio, ratio)
    context.clearRect(0, 0, width, height)
    draw(context, layout, top, height)
  }, [layout, top, width, height, look])
  return <canvas ref={canvas} className={css.canvas} style={{ width, height }} aria-hidden="true" />
}

/** From which size a cell has room for a sign. */
const signsFrom = 16

function draw(context: CanvasRenderingContext2D, layout: Layout, top: number, height: number): void {
  const style = getComputedStyle(document.documentElement)
  const token = (name: string) => style.getPropertyValue(`--${name}`).trim()
  const colours = ['critical', 'warning', 'unknown', 'silenced', 'ok', 'line-strong'].map(token)
  const on = token('on-mark')
  const unseen = token('muted')
  const { columns, step } = layout
  const size = step - (step > 12 ? 3 : 2)
  context.font = `600 ${Math.round(size * 0.68)}px ui-sans-serif, system-ui, sans-serif`
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  for (const band of visible(layout, top, top + height)) {
    const n = band.group.names?.length ?? 0
    const from = Math.max(0, Math.floor((top - band.cells) / step)) * columns
    const to = Math.min(n, (Math.floor((top + height - band.cells) / step) + 1) * columns)
    for (let i = from; i < to; i++) {
      const digit = band.group.worst?.[i]
      const worst = digit === undefined ? undefined : Number(digit)
      const x = (i % columns) * step
      const y = band.cells + Math.floor(i / columns) * step - top
      context.fillStyle = context.strokeStyle = worst === undefined ? unseen : (colours[worst] ?? unseen)
      shape(context, worst, x, y, size)
      const sign = worst === undefined ? '' : t.signs[classes[worst] ?? 'none']
      if (sign !== '' && step >= signsFrom) {
        context.fillStyle = worst === 3 ? (colours[3] ?? unseen) : on
        context.fillText(sign, x + size / 2, y + size / 2 + size * (worst === 1 ? 0.16 : 0.04))
      }
    }
  }
}

/** A shape for each class, so that colour is not needed. The first three are those of the marks in lists; then frame, disc, dot. */
function shape(context: CanvasRenderingContext2D, worst: number | undefined, x: number, y: number, size: number): void {
  context.beginPath()
  switch (worst) {
    case 0: {
      const cut = size * 0.3
      context.moveTo(x + cut, y)
      const corners = [
        [size - cut, 0],
        [size, cut],
        [size, size - cut],
        [size - cut, size],
        [cut, size],
        [0, size - cut],
        [0, cut],
      ] as const
      for (const [px, py] of corners) context.lineTo(x + px, y + py)
      break
    }
    case 1:
      context.moveTo(x + size / 2, y)
      context.lineTo(x + size, y + size)
      context.lineTo(x, y + size)
      break
    case 2:
      context.rect(x, y, size, size)
      break
    case 3:
      context.lineWidth = 1.5
      context.strokeRect(x + 1, y + 1, size - 2, size - 2)
      return
    case 4:
      context.arc(x + size / 2, y + size / 2, size * 0.36, 0, 2 * Math.PI)
      break
    default:
      context.arc(x + size / 2, y + size / 2, size * 0.2, 0, 2 * Math.PI)
  }
  context.fill()
}

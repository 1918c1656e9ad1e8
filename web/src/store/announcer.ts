import { text } from '../text'
import type { Transition } from './store'

/**
 * Turns transitions into sentences for a polite live region, at most one per interval, so that a
 * screen reader does not read a storm.
 */
export class Announcer {
  private incidents = 0
  private resolved = 0
  private last: Transition | undefined
  private timer: ReturnType<typeof setTimeout> | undefined
  private readonly say: (sentence: string) => void
  private readonly interval: number

  constructor(say: (sentence: string) => void, interval = 5000) {
    this.say = say
    this.interval = interval
  }

  add(transition: Transition): void {
    if (transition.to === 'incident') this.incidents++
    else this.resolved++
    this.last = transition
    this.timer ??= setTimeout(() => this.flush(), 400)
  }

  close(): void {
    clearTimeout(this.timer)
  }

  private flush(): void {
    this.timer = undefined
    const { incidents, resolved, last } = this
    if (!last || incidents + resolved === 0) return
    if (incidents + resolved === 1) this.say(text.announceOne(last.row.entity, last.row.check, last.row.status))
    else this.say(text.announceMany(incidents, resolved))
    this.incidents = this.resolved = 0
    this.last = undefined
    // Delays the next sentence for the interval; it then sums up the transitions since.
    this.timer = setTimeout(() => this.flush(), this.interval)
  }
}

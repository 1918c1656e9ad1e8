/** Exponential back-off with full jitter, so that the pages of a whole team do not return in one instant. */
export class Backoff {
  private attempt = 0
  private readonly base: number
  private readonly max: number
  private readonly random: () => number

  constructor(base = 500, max = 15_000, random: () => number = Math.random) {
    this.base = base
    this.max = max
    this.random = random
  }

  /** Milliseconds to wait before the next try. */
  next(): number {
    const ceiling = Math.min(this.max, this.base * 2 ** this.attempt)
    if (ceiling < this.max) this.attempt++
    return Math.round(ceiling / 2 + (this.random() * ceiling) / 2)
  }

  reset(): void {
    this.attempt = 0
  }
}

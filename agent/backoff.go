package agent

import (
	"math/rand/v2"
	"time"
)

// backoff yields the waits between attempts to connect: min first, then longer by a factor. Up to the same time again
// is added at random, so that the agents of a lost backend spread out. No wait exceeds max.
type backoff struct {
	min, max   time.Duration
	multiplier float64

	next float64 // nanoseconds; 0 before the first wait
}

func (b *backoff) wait() time.Duration {
	if b.next == 0 {
		b.next = float64(b.min)
	}
	wait := min(b.next, float64(b.max))
	b.next = wait * b.multiplier * (1 + rand.Float64())
	return time.Duration(wait)
}

func (b *backoff) reset() { b.next = 0 }

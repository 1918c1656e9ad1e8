package handler

import (
	"math"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// bucket holds a handler's deliveries to its rate: tokens come at the rate, up to the burst, and a delivery takes one.
type bucket struct {
	rate, burst float64 // rate 0 means no limit
	tokens      float64
	last        time.Time
}

// set takes over a limit; nil for none. A change keeps the tokens, as far as they fit.
func (b *bucket) set(r *resource.HandlerRate, now time.Time) {
	if r == nil || r.PerSecond <= 0 {
		b.rate = 0
		return
	}
	burst := float64(r.Burst)
	if burst == 0 {
		burst = max(1, math.Ceil(r.PerSecond))
	}
	if b.rate == 0 {
		b.tokens, b.last = burst, now
	}
	b.rate, b.burst = r.PerSecond, burst
	b.tokens = min(b.tokens, burst)
}

// take takes a token, or says how long it is until there is one.
func (b *bucket) take(now time.Time) time.Duration {
	if b.rate == 0 {
		return 0
	}
	b.tokens = min(b.burst, b.tokens+b.rate*max(0, now.Sub(b.last).Seconds()))
	b.last = now
	if b.tokens < 1 {
		return max(time.Millisecond, time.Duration((1-b.tokens)/b.rate*float64(time.Second)))
	}
	b.tokens--
	return 0
}

// giveBack returns the token of a delivery that was not handed over after all.
func (b *bucket) giveBack() {
	if b.rate > 0 {
		b.tokens = min(b.burst, b.tokens+1)
	}
}

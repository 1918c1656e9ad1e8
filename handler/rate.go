package handler

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// bucket limits the rate of a handler's deliveries. The queue's mutex guards it.
type bucket struct {
	limiter *rate.Limiter // nil without a limit
	spare   int           // tokens that were given back
}

// set sets a limit; nil for none. A change keeps the tokens that fit.
func (b *bucket) set(r *resource.HandlerRate, now time.Time) {
	if r == nil || r.PerSecond <= 0 {
		*b = bucket{}
		return
	}
	limit, burst := rate.Limit(r.PerSecond), int(r.Burst)
	if burst == 0 {
		burst = max(1, int(math.Ceil(r.PerSecond)))
	}
	switch {
	case b.limiter == nil:
		b.limiter = rate.NewLimiter(limit, burst)
	case b.limiter.Limit() != limit || b.limiter.Burst() != burst:
		b.limiter.SetLimitAt(now, limit)
		b.limiter.SetBurstAt(now, burst)
		b.spare = min(b.spare, burst)
	}
}

// take takes a token, or returns how long it takes until there is one.
func (b *bucket) take(now time.Time) time.Duration {
	switch {
	case b.limiter == nil:
		return 0
	case b.spare > 0:
		b.spare--
		return 0
	}
	r := b.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return 0
	}
	r.CancelAt(now)
	return max(time.Millisecond, wait)
}

// giveBack returns the token of a delivery that made no attempt.
func (b *bucket) giveBack(now time.Time) {
	if b.limiter != nil && float64(b.spare)+b.limiter.TokensAt(now) < float64(b.limiter.Burst()) {
		b.spare++
	}
}

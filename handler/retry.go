package handler

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/fields"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	defaultMaxBackoff = 5 * time.Minute
	defaultMaxAge     = 24 * time.Hour
	// leastAttempts are made even of a delivery over the greatest age, because it waited for others.
	leastAttempts = 5
)

// policy is when a delivery is tried again.
type policy struct {
	attempts                    int // in all; 0 means no bound
	backoff, maxBackoff, maxAge time.Duration
}

func (d *Dispatcher) policy(h *resource.Handler) policy {
	p := policy{backoff: d.opts.Backoff, maxBackoff: defaultMaxBackoff, maxAge: defaultMaxAge}
	if r := h.Retry; r != nil {
		p.attempts = int(r.MaxAttempts)
		for _, set := range [...]struct {
			to      *time.Duration
			seconds uint32
		}{{&p.backoff, r.Backoff}, {&p.maxBackoff, r.MaxBackoff}, {&p.maxAge, r.MaxAge}} {
			if set.seconds > 0 {
				*set.to = time.Duration(set.seconds) * time.Second
			}
		}
	}
	p.maxBackoff = max(p.maxBackoff, p.backoff)
	return p
}

// next returns, after a failed attempt, how long to wait for the next one, or why there is none. Package send decides
// whether a failure is temporary.
func (p policy) next(done *progress, received int64, res send.Result, now time.Time) (wait time.Duration, again bool, reason string) {
	reason = res.Err.Error()
	if !res.Temporary {
		return 0, false, reason
	}
	if p.attempts > 0 && done.attempts >= p.attempts {
		return 0, false, fmt.Sprintf("%s (attempt %d, the last)", reason, done.attempts)
	}
	if received == 0 {
		received = done.first
	}
	if age := now.Sub(time.UnixMilli(received)); age >= p.maxAge && done.attempts >= leastAttempts {
		return 0, false, fmt.Sprintf("%s (attempt %d, given up after %s)", reason, done.attempts, age.Round(time.Second))
	}
	wait = p.maxBackoff
	if n := done.attempts - 1; n < 32 && p.backoff<<n < p.maxBackoff && p.backoff<<n > 0 {
		wait = p.backoff << n
	}
	return max(wait, min(res.RetryAfter, p.maxBackoff)), true, reason
}

// progress counts the attempts of a delivery, or of a group. climb is that of an escalation, nil for other deliveries.
type progress struct {
	attempts int
	first    int64 // time of the first one, Unix milliseconds
	due      int64 // when the next one is, Unix milliseconds; 0 if none has failed
	climb    *climb
}

func (p progress) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(p.attempts))
	b = binary.AppendVarint(b, p.first)
	b = binary.AppendVarint(b, p.due)
	if p.climb != nil {
		b = p.climb.append(b)
	}
	return b
}

func decodeProgress(b []byte) (p progress, err error) {
	r := fields.NewReader(b)
	attempts, first, due := r.Uint(), r.Int(), r.Int()
	if r.Err() != nil || attempts > 1<<31 {
		return progress{}, errMalformed
	}
	p = progress{attempts: int(attempts), first: first, due: due}
	if len(r.Rest) > 0 {
		p.climb, err = readClimb(r)
	}
	return p, err
}

package handler

import (
	"context"
	"time"
)

// In a cluster a backend may lose the right to make attempts while some are under way: it is cut off, or its process
// stood still, and another member makes them now. So they end. What the peer has got until then is repeated under the
// same key; but no attempt begins, or goes on, long after another member has made it.

// permit lets attempts go on for as long as this backend may make them without a break.
type permit struct {
	ctx context.Context
	end context.CancelFunc
}

func newPermit(ctx context.Context) *permit {
	ctx, cancel := context.WithCancel(ctx)
	return &permit{ctx, cancel}
}

// mayRun reports whether this backend may make attempts now.
func (d *Dispatcher) mayRun() bool { return d.opts.MayRun == nil || d.opts.MayRun() }

// watchAttempts ends the attempts that are under way while this backend may make none.
func (d *Dispatcher) watchAttempts() {
	tick := time.NewTicker(mayRunPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return
		}
		if !d.mayRun() {
			d.permit.Swap(newPermit(d.ctx)).end()
		}
	}
}

// ended returns an attempt that was ended from outside: by Stop, or because this backend may make none.
func (d *Dispatcher) ended(at attempt) attempt {
	if d.ctx.Err() != nil {
		at.stopped = true
		return at
	}
	if at.sent {
		d.metrics.recalled.Inc()
		d.rare.Info("attempts end because this backend may make none now; they are made again", "")
	}
	at.recalled, at.due = true, time.Now().Add(mayRunPause)
	return at
}

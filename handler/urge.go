package handler

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// urgeAt is how many deliveries may have ended before their ends are stored, and urgeAfter how long that may take:
	// a crash repeats no more than those, and what was running.
	urgeAt    = 32
	urgeAfter = 50 * time.Millisecond
)

// urge asks for a Checkpoint when deliveries have ended.
type urge struct {
	due   chan struct{}
	ended atomic.Int64

	mu      sync.Mutex // guards the timer
	timer   *time.Timer
	stopped bool
}

func (u *urge) init() { u.due = make(chan struct{}, 1) }

// Due receives when ends of deliveries wait to be stored: the next Checkpoint of all partitions should come soon then, and
// the database be synced.
func (d *Dispatcher) Due() <-chan struct{} { return d.urge.due }

// hurry notes the end of a delivery.
func (d *Dispatcher) hurry() {
	switch d.urge.ended.Add(1) {
	case 1:
		d.urge.later()
	case urgeAt:
		d.urge.now()
	}
}

func (u *urge) now() {
	u.ended.Store(0)
	select {
	case u.due <- struct{}{}:
	default:
	}
}

func (u *urge) later() {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.stopped:
	case u.timer == nil:
		u.timer = time.AfterFunc(urgeAfter, u.now)
	default:
		u.timer.Reset(urgeAfter)
	}
}

func (u *urge) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = true
	if u.timer != nil {
		u.timer.Stop()
	}
}

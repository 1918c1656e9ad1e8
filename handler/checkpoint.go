package handler

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkpointAt is how many deliveries may have ended before their ends are stored, and checkpointAfter how long
	// that may take. A crash repeats at most these and the running ones.
	checkpointAt    = 32
	checkpointAfter = 50 * time.Millisecond
)

// checkpointSignal asks for a Checkpoint when deliveries have ended.
type checkpointSignal struct {
	c     chan struct{}
	ended atomic.Int64

	mu      sync.Mutex // guards the timer
	timer   *time.Timer
	stopped bool
}

func (s *checkpointSignal) init() { s.c = make(chan struct{}, 1) }

// Due returns a channel that receives when ends of deliveries wait to be stored. The next Checkpoint of all
// partitions, and a sync of the database, should come soon then.
func (d *Dispatcher) Due() <-chan struct{} { return d.due.c }

// noteEnd counts the end of a delivery.
func (d *Dispatcher) noteEnd() {
	switch d.due.ended.Add(1) {
	case 1:
		d.due.later()
	case checkpointAt:
		d.due.now()
	}
}

func (s *checkpointSignal) now() {
	s.ended.Store(0)
	select {
	case s.c <- struct{}{}:
	default:
	}
}

func (s *checkpointSignal) later() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
	case s.timer == nil:
		s.timer = time.AfterFunc(checkpointAfter, s.now)
	default:
		s.timer.Reset(checkpointAfter)
	}
}

func (s *checkpointSignal) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

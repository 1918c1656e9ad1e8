package session

import (
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	// partGrace is how long an agent may take to leave. A lapwing agent waits in it for acknowledgements; a Sensu
	// agent answers the close frame, and may send events before its answer. Then the connection is closed. A lapwing
	// agent that is asked to move to another member has as long to connect there, before it is asked to leave.
	partGrace = 10 * time.Second
	// partStep is the least time between two rounds of sendAway.
	partStep = 10 * time.Millisecond
)

// departure is how far a session is on its way to another backend.
type departure uint8

const (
	staying departure = iota
	moving            // was asked to move to another member, and stays until it is connected there
	parting           // was asked to leave
)

// moveReason is why a session was sent to another backend.
type moveReason string

const (
	forBalance    moveReason = "balance"
	forDrain      moveReason = "drain"
	forSuspension moveReason = "suspended"
)

// departures makes agents leave for other backends, evenly over a time so that these are not flooded: all of them in a
// drain, and some to make the members of a cluster even. It has a goroutine while there are agents to ask or to wait
// for.
type departures struct {
	mu         sync.Mutex    // guards the fields below; taken before all other locks
	drainSince time.Time     // when the drain began; zero if there is none
	drainOver  time.Duration // how long it takes until all agents are asked
	begun      time.Time     // when the time over began to count
	over       time.Duration // how long it takes until all of leaving are asked
	leaving    []*session    // the sessions to ask
	asked      int           // how many of leaving have been asked
	waits      []wait        // for sessions that were asked, by end
	running    bool          // whether the goroutine runs
	wake       chan struct{} // capacity 1; wakes the goroutine
}

// wait is for a session that was asked to go, until it is asked again or closed.
type wait struct {
	one *session
	end time.Time
}

// begin asks sessions to leave, evenly over a time, instead of those that were to be asked. The caller holds mu.
func (d *departures) begin(s *Server, sessions []*session, over time.Duration) {
	d.begun, d.over, d.leaving, d.asked = time.Now(), over, sessions, 0
	if !d.running {
		d.running, d.wake = true, make(chan struct{}, 1)
		s.running.Go(s.sendAway)
		return
	}
	d.look()
}

// balance asks sessions to leave, unless there is a drain.
func (d *departures) balance(s *Server, sessions []*session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drainSince.IsZero() {
		d.begin(s, sessions, balanceEvery)
	}
}

// draining reports whether a drain is under way.
func (d *departures) draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.drainSince.IsZero()
}

// look makes the goroutine check again. The caller holds mu.
func (d *departures) look() {
	select {
	case d.wake <- struct{}{}:
	default: // also if wake is nil because there is no goroutine
	}
}

// sendAway asks and closes sessions until none are left to ask or wait for.
func (s *Server) sendAway() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return // Stop closes all sessions
		case <-s.departures.wake:
		case <-timer.C:
		}
		ask, end, why, next := s.departures.due(time.Now())
		for _, one := range ask {
			s.askToLeave(one, why)
		}
		for _, one := range end {
			s.running.Go(one.close) // may wait for the socket
		}
		if next == 0 {
			return
		}
		timer.Reset(next)
	}
}

// due returns the sessions to ask and to close now, and how long to wait before the next round, 0 if nothing is left to
// do.
func (d *departures) due(now time.Time) (ask, end []*session, why moveReason, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	why = forBalance
	if !d.drainSince.IsZero() {
		why = forDrain
	}
	n := len(d.leaving)
	upTo := n
	if passed := now.Sub(d.begun); passed < d.over {
		upTo = min(n, 1+int(int64(n)*int64(passed)/int64(d.over)))
	}
	ask = append(ask, d.leaving[d.asked:upTo]...)
	d.asked = upTo
	for len(d.waits) > 0 && !d.waits[0].end.After(now) {
		one := d.waits[0].one
		d.waits = d.waits[1:]
		if one.isMoving() {
			ask = append(ask, one)
		} else {
			end = append(end, one)
		}
	}
	for _, one := range ask {
		d.waits = append(d.waits, wait{one, now.Add(partGrace)})
	}
	switch {
	case d.asked < n:
		next = d.begun.Add(d.over * time.Duration(d.asked) / time.Duration(n)).Sub(now)
	case len(d.waits) > 0:
		next = d.waits[0].end.Sub(now)
	default:
		d.running, d.leaving, d.waits = false, nil, nil
		return ask, end, why, 0
	}
	return ask, end, why, max(partStep, next)
}

// askToLeave asks an agent to go to another backend. If there is a member for a lapwing agent, it connects there first,
// and is asked to leave only if it has not gone after a while. When it leaves, it stops sending, waits for the
// acknowledgements of the events it has sent, and takes along only events that are in no log. A Sensu agent gets
// Sensu's goodbye; what it sends before it answers is accepted.
func (s *Server) askToLeave(one *session, why moveReason) {
	leads := s.signpost.Load().leads()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.closed || one.departure == parting {
		return
	}
	if one.departure == staying {
		s.metrics.moved.WithLabelValues(string(why)).Inc()
	}
	s.registry.goes(one)
	switch {
	case why == forBalance && one.departure == staying && one.follows && leads:
		one.departure = moving
		s.pacer.turn(one)
	case one.lapwing:
		one.departure = parting
		s.pacer.now(one)
	default:
		one.departure = parting
		s.running.Go(func() { one.conn.Leave(wire.CloseGoingAway, "bye") })
	}
}

func (s *session) isMoving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departure == moving
}

// pace returns the pace to send to the agent. The caller holds mu.
func (s *session) pace() wire.Pace {
	if s.departure == parting {
		return wire.PaceLeave
	}
	return s.server.pace()
}

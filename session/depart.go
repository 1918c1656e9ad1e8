package session

import (
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	// partGrace is how long an agent may take to leave. A lapwing agent waits in it for acknowledgements; a Sensu
	// agent answers the close frame, and may send events before its answer. Then the connection is closed.
	partGrace = 10 * time.Second
	// partStep is the least time between two rounds of sendAway.
	partStep = 10 * time.Millisecond
)

// drain makes a server's agents leave, evenly over a time so that other backends are not flooded. It has a goroutine
// while there are agents to ask or to wait for. It is not stored: a restarted server takes agents.
type drain struct {
	mu      sync.Mutex    // guards the fields below; taken before all other locks
	since   time.Time     // when the drain began; zero if there is none
	begun   time.Time     // when the time over began to count
	over    time.Duration // how long it takes until all agents are asked
	leaving []*session    // the sessions to ask
	asked   int           // how many of leaving have been asked
	parting []parting     // sessions that were asked, by deadline
	running bool          // whether the goroutine runs
	wake    chan struct{} // capacity 1; wakes the goroutine
}

// parting is a session that was asked to leave, and when it is closed if it is still open.
type parting struct {
	one *session
	end time.Time
}

// Drain makes all agents leave for other backends, spread over a time, and refuses new ones. A second call starts over
// with the agents that are still connected. It returns at once; the server must have been started.
func (s *Server) Drain(over time.Duration) {
	d := &s.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	open := slices.DeleteFunc(s.registry.refuse(true), func(one *session) bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.parting
	})
	d.begun, d.over, d.leaving, d.asked = time.Now(), max(0, over), open, 0
	if d.since.IsZero() {
		d.since = d.begun
	}
	s.metrics.draining.Set(1)
	s.log.Warn("agents are sent to other backends", "sessions", len(open), "seconds", d.over.Seconds())
	if !d.running {
		d.running, d.wake = true, make(chan struct{}, 1)
		s.running.Go(s.sendAway)
		return
	}
	d.look()
}

// Undrain ends a drain: agents are accepted again, and no more are asked to leave. Agents that were already asked
// still go.
func (s *Server) Undrain() {
	d := &s.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.since.IsZero() {
		return
	}
	d.since, d.leaving, d.asked = time.Time{}, nil, 0
	s.registry.refuse(false)
	s.metrics.draining.Set(0)
	s.log.Warn("drain has ended: agents are accepted again")
	d.look()
}

// Draining returns when the drain began, how long it takes, and how many sessions are left. since is zero if there is
// no drain.
func (s *Server) Draining() (since time.Time, over time.Duration, sessions int) {
	d := &s.drain
	d.mu.Lock()
	if since = d.since; !since.IsZero() {
		over = d.over
	}
	d.mu.Unlock()
	return since, over, s.registry.count()
}

// on reports whether a drain is under way.
func (d *drain) on() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

// look makes the goroutine check again. The caller holds mu.
func (d *drain) look() {
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
		case <-s.drain.wake:
		case <-timer.C:
		}
		ask, end, wait := s.drain.due(time.Now())
		for _, one := range ask {
			s.askToLeave(one)
		}
		for _, one := range end {
			s.running.Go(one.close) // may wait for the socket
		}
		if wait == 0 {
			return
		}
		timer.Reset(wait)
	}
}

// due returns the sessions to ask and to close now, and how long to wait before the next round. wait is 0 if nothing
// is left to do.
func (d *drain) due(now time.Time) (ask, end []*session, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.leaving)
	upTo := n
	if passed := now.Sub(d.begun); passed < d.over {
		upTo = min(n, 1+int(int64(n)*int64(passed)/int64(d.over)))
	}
	ask = d.leaving[d.asked:upTo]
	d.asked = upTo
	for _, one := range ask {
		d.parting = append(d.parting, parting{one, now.Add(partGrace)})
	}
	for len(d.parting) > 0 && !d.parting[0].end.After(now) {
		end = append(end, d.parting[0].one)
		d.parting = d.parting[1:]
	}
	switch {
	case d.asked < n:
		wait = d.begun.Add(d.over * time.Duration(d.asked) / time.Duration(n)).Sub(now)
	case len(d.parting) > 0:
		wait = d.parting[0].end.Sub(now)
	default:
		d.running, d.leaving, d.parting = false, nil, nil
		return ask, end, 0
	}
	return ask, end, max(partStep, wait)
}

// askToLeave asks an agent to go to another backend. A lapwing agent stops sending, waits for the acknowledgements of
// the events it has sent, and leaves: it takes along only events that are in no log. A Sensu agent gets Sensu's
// goodbye; what it sends before it answers is accepted.
func (s *Server) askToLeave(one *session) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.closed || one.parting {
		return
	}
	one.parting = true
	if one.lapwing {
		s.pacer.now(one)
		return
	}
	s.running.Go(func() { one.conn.Leave(wire.CloseGoingAway, "bye") })
}

// pace returns the pace to send to the agent. The caller holds mu.
func (s *session) pace() wire.Pace {
	if s.parting {
		return wire.PaceLeave
	}
	return s.server.pace()
}

// refuse sets whether new sessions are refused from now on, and returns the open ones.
func (r *registry) refuse(yes bool) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = yes
	return r.open()
}

// count returns the number of open sessions.
func (r *registry) count() (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, same := range r.agents {
		n += len(same)
	}
	return n
}

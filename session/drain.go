package session

import (
	"slices"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

const (
	// partGrace is how long an agent that was asked to leave may take: to hear what of its events is durable, if it is one of
	// lapwing's; else to answer the close frame, before which it may have sent events. Then the connection is closed.
	partGrace = 10 * time.Second
	// partStep is the least time between two looks at whose turn it is.
	partStep = 10 * time.Millisecond
)

// drain has a server's agents leave, at even distances so that other backends are not flooded. It has a goroutine while
// there are agents to ask or to wait for. It is not stored: a server that is started anew takes agents.
type drain struct {
	mu      sync.Mutex    // guards the fields below; taken before all other locks
	since   time.Time     // when it was asked for; zero if the server takes agents
	begun   time.Time     // when over began
	over    time.Duration // the time for all of leaving
	leaving []*session    // who is to be asked in it
	asked   int           // of leaving
	parting []parting     // who was asked, by their ends
	running bool          // the goroutine is there
	wake    chan struct{} // capacity 1; of the goroutine
}

// parting is a session that was asked to leave, and when it is closed if it is still there.
type parting struct {
	one *session
	end time.Time
}

// Drain has all agents leave for other backends, spread over a time, and refuses new ones. Called again it does the
// same with the agents that are still there. It returns at once; the server must have been started.
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

// Undrain ends a drain: agents are taken again, and no more are asked to leave. Agents that were asked go.
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
	s.log.Warn("agents are taken again")
	d.look()
}

// Draining says since when the server sends its agents away, over which time it does, and how many sessions are left. since
// is zero if it takes agents.
func (s *Server) Draining() (since time.Time, over time.Duration, sessions int) {
	d := &s.drain
	d.mu.Lock()
	if since = d.since; !since.IsZero() {
		over = d.over
	}
	d.mu.Unlock()
	return since, over, s.registry.count()
}

// on says whether agents are sent away.
func (d *drain) on() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.since.IsZero()
}

// look wakes the goroutine, which looks again. The caller holds mu.
func (d *drain) look() {
	select {
	case d.wake <- struct{}{}:
	default: // it is nil, too, when there is none
	}
}

// sendAway asks and closes sessions until there are none to ask or wait for.
func (s *Server) sendAway() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return // Stop closes all
		case <-s.drain.wake:
		case <-timer.C:
		}
		ask, end, wait := s.drain.due(time.Now())
		for _, one := range ask {
			s.askToLeave(one)
		}
		for _, one := range end {
			s.running.Go(one.close) // it may wait for a socket
		}
		if wait == 0 {
			return
		}
		timer.Reset(wait)
	}
}

// due says who is to be asked and to be closed now, and when to look again. There is no more to do if wait is 0.
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

// askToLeave has an agent go to another backend. One of lapwing's sends no more events, hears which of those that it has sent
// are durable, and leaves: what it takes along is in no other log. Any other one gets Sensu's goodbye; what it has sent before
// it answers is taken.
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

// pace is what the agent is to be told. The caller holds mu.
func (s *session) pace() wire.Pace {
	if s.parting {
		return wire.PaceLeave
	}
	return s.server.pace()
}

// refuse says whether new sessions are refused from now on, and returns the open ones.
func (r *registry) refuse(yes bool) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = yes
	return r.open()
}

// count is how many sessions are open.
func (r *registry) count() (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, same := range r.agents {
		n += len(same)
	}
	return n
}

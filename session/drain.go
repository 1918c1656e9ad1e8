package session

import (
	"net/http"
	"slices"
	"time"
)

// Drain makes all agents leave for other backends, spread over a time, and refuses new ones. A second call starts over
// with the agents that are still connected. It returns at once; the server must have been started. It is not stored: a
// restarted server takes agents.
func (s *Server) Drain(over time.Duration) {
	members := s.members() // before the lock: Options.Members may ask whether the server is draining
	d := &s.departures
	d.mu.Lock()
	defer d.mu.Unlock()
	open := slices.DeleteFunc(s.registry.refuse(&s.registry.draining, true), func(one *session) bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.departure == parting
	})
	d.drainOver = max(0, over)
	if d.drainSince.IsZero() {
		d.drainSince = time.Now()
	}
	s.metrics.draining.Set(1)
	s.log.Warn("agents are sent to other backends", "sessions", len(open), "seconds", d.drainOver.Seconds())
	s.direct(members, shareOfOthers(members, s.Sessions()), true, false) // the first agent leaves at once
	d.begin(s, open, d.drainOver)
}

// Undrain ends a drain: agents are accepted again, and no more are asked to leave. Agents that were already asked
// still go.
func (s *Server) Undrain() {
	d := &s.departures
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drainSince.IsZero() {
		return
	}
	d.drainSince, d.leaving, d.asked = time.Time{}, nil, 0
	s.registry.refuse(&s.registry.draining, false)
	s.metrics.draining.Set(0)
	s.log.Warn("drain has ended: agents are accepted again")
	d.look()
}

// Draining returns when the drain began, how long it takes, and how many sessions are left. since is zero if there is
// no drain.
func (s *Server) Draining() (since time.Time, over time.Duration, sessions int) {
	d := &s.departures
	d.mu.Lock()
	if since = d.drainSince; !since.IsZero() {
		over = d.drainOver
	}
	d.mu.Unlock()
	return since, over, s.registry.count()
}

// Suspend closes all sessions now, and refuses agents with 503 until Resume. It is for a backend that must not take
// events while others may. Nothing is waited for; lapwing agents send again what was not acknowledged. Another call
// changes the reason, which refused agents get. It may be called before Start.
func (s *Server) Suspend(reason string) {
	if !s.registry.enter(&s.running) {
		return // Stop closes all sessions
	}
	defer s.running.Done()
	before := s.suspended.Swap(&reason)
	open := s.registry.refuse(&s.registry.suspended, true)
	s.metrics.suspended.Set(1)
	s.metrics.moved.WithLabelValues(string(forSuspension)).Add(float64(len(open)))
	if before == nil || *before != reason || len(open) > 0 {
		s.log.Warn("agents are refused, and their sessions closed", "sessions", len(open), "reason", reason)
	}
	for _, one := range open {
		s.running.Go(one.close) // may wait for the socket
	}
}

// Resume ends what Suspend began: agents are accepted again.
func (s *Server) Resume() {
	if s.suspended.Swap(nil) == nil {
		return
	}
	s.registry.refuse(&s.registry.suspended, false)
	s.metrics.suspended.Set(0)
	s.log.Warn("agents are accepted again")
}

// Suspended returns why agents are refused, if Suspend was called and Resume was not.
func (s *Server) Suspended() (reason string, yes bool) {
	if r := s.suspended.Load(); r != nil {
		return *r, true
	}
	return "", false
}

// retryAfter is how many seconds an agent that knows no other backend waits after a refusal.
const retryAfter = "5"

// refuseAgents answers a handshake while no agents are taken, and reports whether it has.
func (s *Server) refuseAgents(w http.ResponseWriter, refuse func(status int, text string)) bool {
	if reason, yes := s.Suspended(); yes {
		w.Header().Set("Retry-After", retryAfter)
		refuse(http.StatusServiceUnavailable, "this backend takes no agents now: "+reason)
		return true
	}
	if s.departures.draining() {
		w.Header().Set("Retry-After", retryAfter)
		refuse(http.StatusServiceUnavailable, "this backend is draining: connect to another one")
		return true
	}
	return false
}

// refuse sets one of the reasons to refuse new sessions, and returns the open ones.
func (r *registry) refuse(reason *bool, yes bool) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	*reason = yes
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

package session

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// quietLooks is how many sweeps of watchIdle make an idle timeout.
const quietLooks = 8

// watchIdle closes connections that have been silent for the idle timeout, and connections with a message that takes
// too long. It sweeps all sessions now and then, because timers would cost too much per read.
func (s *Server) watchIdle(ctx context.Context) {
	idle := time.NewTicker(s.opts.IdleTimeout / quietLooks)
	defer idle.Stop()
	partial := time.NewTicker(max(s.opts.MessageTimeout/quietLooks, time.Millisecond))
	defer partial.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-partial.C:
			s.partials.Sweep()
			s.relieve()
		case <-idle.C:
			s.sweepIdle()
		}
	}
}

// sweepIdle pings the agents that have been silent for half of the timeout. Agents of all versions answer pings, so
// only dead connections stay silent until the timeout.
func (s *Server) sweepIdle() {
	var silent, dead []*session
	s.registry.each(func(one *session) {
		if one.conn.Heard() || one.excused() {
			one.quiet = 0
			return
		}
		switch one.quiet++; {
		case one.quiet >= quietLooks:
			dead = append(dead, one)
		case one.quiet == quietLooks/2:
			silent = append(silent, one)
		}
	})
	for _, one := range silent {
		s.running.Go(func() { _ = one.conn.Ping() }) // if the ping fails, the agent stays silent
	}
	for _, one := range dead {
		s.metrics.idleClosed.Inc()
		s.rare.Info("agent was silent and does not answer: its connection is closed", "", "agent", one.name, "namespace", one.namespace,
			"address", one.conn.RemoteAddr().String(), "idle_timeout", s.opts.IdleTimeout.String())
		s.running.Go(one.close)
	}
}

// slowMessage counts a connection that was closed because its message stayed incomplete.
func (s *Server) slowMessage(c *wire.Conn, arrived int64, took time.Duration) {
	s.metrics.slowMessages.Inc()
	s.rare.Warn("a message took too long to arrive: the connection is closed", "",
		"address", c.RemoteAddr().String(), "arrived_bytes", arrived, "seconds", took.Seconds())
}

// relieve closes connections if the system has no memory for sockets left, because many agents send more than is read.
// Their agents connect again later, and lapwing agents then send again what was not acknowledged.
func (s *Server) relieve() {
	if s.partials.Use().Stopped == 0 || !s.socketsFull() {
		return
	}
	n := s.partials.Relieve()
	s.metrics.relieved.Add(float64(n))
	s.rare.Warn("the system has no memory for sockets left: connections that wait are closed, to let others continue", "",
		"closed", n)
}

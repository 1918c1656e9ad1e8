package session

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// quietLooks is how many looks of watchIdle make an idle timeout.
const quietLooks = 8

// watchIdle closes the connections of agents from which nothing has come for the idle timeout, and those with a message
// that takes too long. It looks at all of them now and then: timers would cost each read more than they are worth.
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
		case <-idle.C:
			s.sweepIdle()
		}
	}
}

// sweepIdle pings the agents from which nothing has come for half of the timeout. Agents of all versions answer pings, so only
// dead connections stay silent for the rest of it.
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
		s.running.Go(func() { _ = one.conn.Ping() }) // a ping that fails is an agent that is silent
	}
	for _, one := range dead {
		s.metrics.idleClosed.Inc()
		s.rare.Info("agent was silent and does not answer: its connection is closed", "", "agent", one.name, "namespace", one.namespace,
			"address", one.conn.RemoteAddr().String(), "idle_timeout", s.opts.IdleTimeout.String())
		s.running.Go(one.close)
	}
}

// slowMessage counts a connection that was closed because its message did not become complete.
func (s *Server) slowMessage(c *wire.Conn, arrived int64, took time.Duration) {
	s.metrics.slowMessages.Inc()
	s.rare.Warn("a message took too long to arrive: the connection is closed", "",
		"address", c.RemoteAddr().String(), "arrived_bytes", arrived, "seconds", took.Seconds())
}

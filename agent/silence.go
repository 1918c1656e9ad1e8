package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// errSilent ends a connection to a backend that stands still. Its host keeps the connection open, so nothing breaks.
var errSilent = errors.New("the backend stands still: it has answered neither the agent nor a ping")

// silence notices a backend that stands still while it has events to acknowledge, or before it has sent its definition
// of the agent: first it asks with a ping, then it ends the connection, so that the events go to another backend.
//
// An overloaded backend may be silent for longer, because it reads slowly. But it slows its agents down within two
// seconds, and at any pace but go only the heartbeat ends the connection. It is the same if there is no other backend.
type silence struct {
	timer  *time.Timer
	active bool // the timer runs
	pinged bool
}

// expect begins to wait for the answer to the handshake, or to events that were just sent.
func (l *link) expect() {
	if !l.about.Lapwing || l.silence.active {
		return
	}
	l.silence.active, l.silence.pinged = true, false
	_ = l.conn.Heard() // only what comes from now on counts
	l.silence.timer.Reset(l.t.opts.AnswerTimeout / 3)
}

// checkAnswered is called when the timer fires. It asks again, or returns an error that ends the connection. ready says
// that the backend has sent its definition of the agent.
func (l *link) checkAnswered(ready bool) error {
	s, limit := &l.silence, l.t.opts.AnswerTimeout
	s.active = false
	pace, _ := l.getPace()
	switch {
	case ready && l.t.outbox.allAcked():
		return nil
	case l.conn.Heard() || pace != wire.PaceGo || !l.t.addresses.several():
		l.expect()
		return nil
	case s.pinged:
		return fmt.Errorf("%w for %s", errSilent, limit)
	}
	s.active, s.pinged = true, true
	s.timer.Reset(limit - limit/3)
	if err := l.conn.Ping(); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// waits knows the sessions whose goroutines wait with a message: for a quota, for the registration of an entity, or for room in
// the log. Nothing reads their connections meanwhile, so nothing else would notice that a peer has gone, and while the disk is
// full its session and message would stay for ever. The poller does the same for connections that it holds.
type waits struct {
	mu  sync.Mutex // guards all
	all map[*session]*sessionWait
}

// sessionWait is one session's wait.
type sessionWait struct {
	end    context.CancelCauseFunc
	hungUp time.Time // when the peer was first seen to have hung up; zero before
}

// errPeerGone ends the wait of a session whose peer has gone.
var errPeerGone = errors.New("the agent has gone while its message had to wait: the message is dropped")

// goneLook is between two looks at the peers of sessions that wait.
const goneLook = time.Second

// begin notes that a session waits until the context ends or end is called.
func (w *waits) begin(ctx context.Context, s *session) (waiting context.Context, end func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[s] = &sessionWait{end: cancel}
	return waiting, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, s)
	}
}

// look ends the waits of sessions whose peers have broken their connections, or have hung up a while ago.
func (w *waits) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, one := range w.all {
		switch s.conn.Peer() {
		case wire.PeerThere:
			one.hungUp = time.Time{}
			continue
		case wire.PeerHungUp:
			if one.hungUp.IsZero() {
				one.hungUp = now
			}
			if now.Sub(one.hungUp) < wire.HungUpPatience {
				continue
			}
		case wire.PeerGone:
		}
		one.end(errPeerGone)
	}
}

// run looks until ctx ends.
func (w *waits) run(ctx context.Context) {
	tick := time.NewTicker(goneLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.look(time.Now())
		}
	}
}

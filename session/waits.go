package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// waits holds the sessions whose goroutines wait with a message: for a quota, for the registration of an entity, or
// for room in the log. Their connections are not read in that time, so a peer's end would go unnoticed, and while the
// disk is full the session and its message would stay for ever. The poller does the same for its connections.
type waits struct {
	mu  sync.Mutex // guards all
	all map[*session]*sessionWait
}

// sessionWait is one session's wait.
type sessionWait struct {
	end    context.CancelCauseFunc
	hungUp time.Time // when the peer was first seen to have hung up; zero before
	pinged time.Time // or when the wait began
	// pinging says that a ping is on its way: the socket may be full.
	pinging atomic.Bool
}

// errPeerGone ends the wait of a session whose peer has gone.
var errPeerGone = errors.New("the agent has gone while its message had to wait: the message is dropped")

// goneLook is the time between two checks of the waiting sessions' peers.
const goneLook = time.Second

// pingWaiting is the time between two pings to an agent that waits. An agent of a cluster leaves a backend from which
// it hears nothing for some seconds, unless its pace is slowed down.
const pingWaiting = 2 * time.Second

// begin registers a session's wait until the context ends or end is called.
func (w *waits) begin(ctx context.Context, s *session) (waiting context.Context, end func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[s] = &sessionWait{end: cancel, pinged: time.Now()}
	return waiting, func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, s)
	}
}

// look ends the waits of sessions whose peers have broken their connections, or hung up a while ago. It pings the
// others, whose own pings are not read.
func (w *waits) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, one := range w.all {
		switch s.conn.Peer() {
		case wire.PeerThere:
			one.hungUp = time.Time{}
			if s.lapwing && s.server.pace() == wire.PaceGo && now.Sub(one.pinged) >= pingWaiting && !one.pinging.Swap(true) {
				one.pinged = now
				s.server.running.Go(func() {
					defer one.pinging.Store(false)
					_ = s.conn.Ping() // may wait for the socket; if it fails, so does the next read
				})
			}
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

// run checks until ctx ends.
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

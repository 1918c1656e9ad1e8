package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// minRepairPause is the least time between the starts of two repairs.
	minRepairPause = 15 * time.Second
	// longOutage is how long writes must go unanswered before the store counts as broken. A store that is only busy,
	// for example when ten thousand agents register at once, answers some writes late; opening it again would stop all
	// answers for a while.
	longOutage = 15 * time.Second
	// stuckTime is how long a stream that has a leader and a majority may commit nothing before something is done about
	// it. An election takes up to 9 s.
	stuckTime = 20 * time.Second
)

// Outage measures for one writer how long the store has not answered. The zero value is ready for use on one server.
type Outage struct {
	// Stream is what the writer writes to. Required in a cluster.
	Stream string

	begin atomic.Int64 // Unix nanoseconds of the first write since the last answer that timed out; 0 if none did
}

// Answered ends the outage.
func (o *Outage) Answered() {
	if o.begin.Load() != 0 {
		o.begin.Store(0)
	}
}

// TimedOut notes that a write was not answered in time, and repairs the store when the outage has lasted long.
//
// Alone, the store is closed and opened again after 15 s. In a cluster that would make things worse while there is no
// majority: all that is left would do it again and again. So there it only acts on a stream that has a leader and a
// connected majority and still commits nothing: after 20 s the leader is asked to step down, and after 20 s more the
// leader's server opens its store again, on this member alone. NATS servers that are run beside lapwing look after
// themselves.
func (b *Broker) TimedOut(o *Outage) error {
	if b.opts.External != nil {
		return nil
	}
	now := time.Now()
	if o.begin.CompareAndSwap(0, now.UnixNano()) {
		return nil
	}
	noted := o.begin.Load()
	if noted == 0 { // another write was answered just now
		return nil
	}
	begin := time.Unix(0, noted)
	if b.opts.Cluster != nil {
		return b.treat(o.Stream, begin, now)
	}
	if now.Sub(begin) < longOutage {
		return nil
	}
	b.repairing.Lock()
	defer b.repairing.Unlock()
	return b.repair()
}

// treat does what judge says about a stream whose writes time out.
func (b *Broker) treat(stream string, begin, now time.Time) error {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	s := b.stuck[stream]
	if s == nil {
		s = &stuckStream{}
		b.stuck[stream] = s
	}
	switch s.judge(now, begin, b.view(stream)) {
	case stepDown:
		b.log.Warn("a stream has a leader and commits nothing: the leader is asked to step down", "stream", stream)
		ctx, cancel := context.WithTimeout(b.life, apiTimeout)
		defer cancel()
		return b.StepDown(ctx, stream)
	case reopen:
		return b.repair()
	}
	return nil
}

// remedy is what to do about a stream that commits nothing.
type remedy string

const (
	wait     remedy = "wait"
	stepDown remedy = "step down"
	reopen   remedy = "reopen"
)

// streamView is how a stream stands, as this member knows it.
type streamView struct {
	Leader   string // "" if none is known
	Leads    bool   // the leader is this member
	Majority bool   // a majority of the members is connected
	Last     uint64 // the newest message of this member's replica
}

// stuckStream follows a stream whose writes time out.
type stuckStream struct {
	leader string
	last   uint64
	since  time.Time // since then the leader and the last message are the same, and there is a majority
	asked  time.Time // when a leader was asked to step down; zero if not since the last commit
}

// judge decides what to do. begin is when a write timed out first since the last one that was answered.
func (s *stuckStream) judge(now, begin time.Time, v streamView) remedy {
	if v.Last != s.last || s.asked.Before(begin) {
		s.asked = time.Time{}
	}
	if v.Leader == "" || !v.Majority || v.Leader != s.leader || v.Last != s.last {
		s.leader, s.last, s.since = v.Leader, v.Last, now
		return wait
	}
	stuck := now.Sub(s.since) >= stuckTime && now.Sub(begin) >= stuckTime
	switch {
	case !stuck:
		return wait
	case s.asked.IsZero():
		s.asked = now
		return stepDown
	case now.Sub(s.asked) < stuckTime || !v.Leads:
		return wait
	}
	*s = stuckStream{}
	return reopen
}

// repair closes the store and opens it again, at most every 15 s. A stream that failed to write, for example on a full
// disk, takes no more writes until then, even when there is space again. Readers resume by themselves. No acknowledged
// write is lost: opening reads what is on disk. The caller holds repairing.
func (b *Broker) repair() error {
	if time.Since(b.repaired) < minRepairPause {
		return nil
	}
	b.mu.Lock()
	srv := b.srv
	b.mu.Unlock()
	if srv == nil {
		return nil
	}
	b.log.Warn("writes to the broker's store time out: it is opened again")
	b.repairs.Inc()
	err := b.reopen(srv)
	b.repaired = time.Now()
	if err != nil {
		return fmt.Errorf("open broker's store again: %w", err)
	}
	return nil
}

// reopen closes the store and opens it again. The caller holds repairing.
func (b *Broker) reopen(srv *server.Server) error {
	if b.opts.Cluster != nil {
		return b.restart(srv)
	}
	if err := srv.ShutdownJetStream(); err != nil {
		return err
	}
	if err := srv.EnableJetStream(b.storeConfig()); err != nil {
		return errors.Join(err, srv.ShutdownJetStream()) // it may be half open
	}
	return nil
}

// restart replaces the server of a cluster's member by a new one. A server can also open its store a second time, but
// until it knows the cluster again it then answers the other members like a single server: from its own copies, which
// may be behind. A member that cannot open its store gets a server without one, and so stays connected to the others.
func (b *Broker) restart(srv *server.Server) error {
	b.mu.Lock()
	routes, port := b.routes, b.port
	b.mu.Unlock()
	options := func(store bool) *server.Options {
		opts := b.memberOptions(routes)
		opts.Cluster.Port, opts.JetStream = port, store
		return opts
	}
	end(srv, nil)
	next, err := b.boot(options(true))
	if err != nil {
		var bare error
		if next, bare = b.boot(options(false)); bare != nil {
			return errors.Join(err, bare)
		}
	}
	b.mu.Lock()
	b.srv = next
	b.mu.Unlock()
	b.current.srv.Store(next)
	return err
}

// storeConfig returns a copy of the configuration with which the store was first opened.
func (b *Broker) storeConfig() *server.JetStreamConfig {
	b.mu.Lock()
	defer b.mu.Unlock()
	config := b.store
	return &config
}

// reopenClosed opens the store of a cluster's member again that the server has closed because the disk was full, once
// there is space again.
func (b *Broker) reopenClosed(srv *server.Server) {
	b.repairing.Lock()
	defer b.repairing.Unlock()
	err := room(b.opts.Dir)
	if err == nil {
		b.repairs.Inc()
		err = b.restart(srv)
	}
	if err != nil {
		b.rare.Error("the broker's store was closed, most likely because the disk is full, and cannot be opened again now", "",
			"err", err)
		return
	}
	b.log.Warn("the broker's store was closed, most likely because the disk was full, and is open again")
}

// leastRoom is the space that a store needs to be opened, in bytes.
const leastRoom = 4 << 20

// room returns an error if a directory's disk has not so much space.
func room(dir string) (err error) {
	f, err := os.Create(filepath.Join(dir, "room")) // a kill may leave it, and the next look removes it
	if err != nil {
		return fmt.Errorf("look for space: %w", err)
	}
	if _, err = f.Write(make([]byte, leastRoom)); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("look for space: %w", err)
	}
	return nil
}

package session

import (
	"context"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Pressure says how far the backend is behind with events.
type Pressure struct {
	// Err is why the log takes no events; nil while it does.
	Err error
	// Waited is how long the oldest append has been waiting for room in the log. LargeWaited is the same for large
	// records, which have a queue of their own.
	Waited, LargeWaited time.Duration
	// Lag is how long the log has held an event that is not folded.
	Lag time.Duration
	// Unread is for how long agents' sockets have always held unread data.
	Unread time.Duration
}

// gauge measures the pressure on the log and the fold. It is for one goroutine.
type gauge struct {
	log    *eventlog.Log
	state  *state.State
	ended  context.Context // a context that has ended, for calls that must not wait
	probes []probe         // by partition
}

// probe is a message of the log whose fold is awaited.
type probe struct {
	seq   uint64
	since time.Time // zero when it is folded
}

func newGauge(log *eventlog.Log, state *state.State) *gauge {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return &gauge{log: log, state: state, ended: ended, probes: make([]probe, log.Partitions())}
}

func (g *gauge) look() Pressure {
	now := time.Now()
	q := Pressure{Err: g.log.Err(), Lag: g.lag(now)}
	q.Waited, q.LargeWaited = g.log.Waited(now)
	return q
}

// lag returns how long the fold has not reached a message that was the newest of its partition.
func (g *gauge) lag(now time.Time) (longest time.Duration) {
	for partition := range g.probes {
		p := &g.probes[partition]
		if p.since.IsZero() || g.folded(partition, p.seq) {
			*p = probe{seq: g.log.Newest(partition), since: now}
			if g.folded(partition, p.seq) {
				p.since = time.Time{}
			}
		}
		if !p.since.IsZero() {
			longest = max(longest, now.Sub(p.since))
		}
	}
	return longest
}

func (g *gauge) folded(partition int, seq uint64) bool {
	return g.state.WaitFolded(g.ended, partition, seq) == nil
}

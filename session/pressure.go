package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Pressure is how hard it is for the backend to take events.
type Pressure struct {
	// Err is why the log takes none, nil while it does.
	Err error
	// Blocked is how many appends have been waiting for room in the log's buffers since the look before. Large records do not count:
	// they wait apart, and the log may have room for all others.
	Blocked int
	// Waited is for how long the append that has waited longest has waited, large or not.
	Waited time.Duration
	// Lag is how long the log has held an event that is not folded.
	Lag time.Duration
	// Unread is for how long agents' sockets have always held something that was not read.
	Unread time.Duration
}

// append puts a record into the log, waiting for room there until ctx ends at the latest. Meanwhile it is counted.
func (i *Intake) append(ctx context.Context, rec *eventlog.Record, acker eventlog.Acker, token uint64) error {
	if err := checkNames(rec); err != nil {
		return err
	}
	if !eventlog.Large(rec) {
		defer i.appending.begin().Add(-1)
	}
	err := i.opts.Log.AppendContext(ctx, rec, acker, token)
	if err == nil && rec.Flags&eventlog.FlagSilenced != 0 {
		i.metrics.silenced.Inc()
	}
	return err
}

// checkNames refuses a record whose names are too long, wherever it comes from.
func checkNames(rec *eventlog.Record) error {
	if len(rec.Namespace) > resource.MaxName || len(rec.Entity) > resource.MaxName || len(rec.Check) > resource.MaxName {
		return reject("invalid", "event of %q/%q: a name must not be longer than %d bytes",
			resource.Short(rec.Entity), resource.Short(rec.Check), resource.MaxName)
	}
	return nil
}

// appendFrom is append for a record of a source, which may have to be prompt.
func (i *Intake) appendFrom(ctx context.Context, src source, rec *eventlog.Record) error {
	if !src.prompt {
		return i.append(ctx, rec, src.acker, src.token)
	}
	if err := checkNames(rec); err != nil {
		return err
	}
	switch err := i.opts.Log.TryAppend(rec, src.acker, src.token); {
	case errors.Is(err, eventlog.ErrNoRoom):
		return noRoom{i.opts.Log.Partition(rec.Namespace, rec.Entity)}
	case err != nil:
		return err
	}
	if rec.Flags&eventlog.FlagSilenced != 0 {
		i.metrics.silenced.Inc()
	}
	return nil
}

// underWay counts calls that have begun and not ended, so that it can be told, without a clock, how many of them take long.
// They are counted in two turns: new ones in one, while the other is left to run out.
type underWay struct {
	turn   atomic.Uint32
	counts [2]atomic.Int64
	before int64 // what the last look found
}

// begin counts a call, which ends with an Add(-1) to what it returns.
func (u *underWay) begin() *atomic.Int64 {
	n := &u.counts[u.turn.Load()%2]
	n.Add(1)
	return n
}

// look is how many calls have lasted since the look before. It is for one goroutine.
func (u *underWay) look() int {
	turn := u.turn.Load()
	old := u.counts[(turn+1)%2].Load()
	found := max(old, u.before) // when the turns change, nothing is known of those that have just become old
	if u.before = old; old == 0 {
		u.turn.Store(turn + 1)
	}
	return int(found)
}

// gauge measures the pressure on an Intake, at each look. It is for one goroutine.
type gauge struct {
	intake *Intake
	ended  context.Context // for those who ask without waiting
	probes []probe         // by partition
}

// probe is a message of the log that is waited for.
type probe struct {
	seq   uint64
	since time.Time // zero when it is folded
}

func newGauge(i *Intake) *gauge {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return &gauge{intake: i, ended: ended, probes: make([]probe, i.opts.Log.Partitions())}
}

func (g *gauge) look() Pressure {
	now := time.Now()
	return Pressure{
		Err: g.intake.opts.Log.Err(), Blocked: g.intake.appending.look(), Waited: g.intake.opts.Log.Waited(now), Lag: g.lag(now),
	}
}

// lag is how long the fold has not come to a message that was the newest of its partition.
func (g *gauge) lag(now time.Time) (longest time.Duration) {
	for partition := range g.probes {
		p := &g.probes[partition]
		if p.since.IsZero() || g.folded(partition, p.seq) {
			*p = probe{seq: g.intake.opts.Log.Newest(partition), since: now}
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
	return g.intake.opts.State.WaitFolded(g.ended, partition, seq) == nil
}

package session

import (
	"context"
	"errors"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Pressure is how hard it is for the backend to take events.
type Pressure struct {
	// Err is why the log takes none, nil while it does.
	Err error
	// Waited is how long the oldest append that waits for room in the log has waited. LargeWaited is the same for large records, which
	// have a queue of their own.
	Waited, LargeWaited time.Duration
	// Lag is how long the log has held an event that is not folded.
	Lag time.Duration
	// Unread is for how long agents' sockets have always held something that was not read.
	Unread time.Duration
}

// append puts a record into the log, waiting for room there until ctx ends at the latest.
func (i *Intake) append(ctx context.Context, rec *eventlog.Record, acker eventlog.Acker, token uint64) error {
	if err := checkNames(rec); err != nil {
		return err
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
	q := Pressure{Err: g.intake.opts.Log.Err(), Lag: g.lag(now)}
	q.Waited, q.LargeWaited = g.intake.opts.Log.Waited(now)
	return q
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

package state

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// Applied is a change of a pair right after its fold: an event, or a deletion. It may be read only until the Folder's
// next step.
type Applied struct {
	// Kind is eventlog.KindEvent for a change of a pair. For records of other packages, KindDeliveries and KindRoster,
	// only the positions, Origin and Record are set.
	Kind      eventlog.Kind
	Partition int
	Seq       uint64 // sequence number of its message in the log
	Sub       int    // its place in the message

	Namespace, Entity, Check string // Check is "" for an event with metrics only
	// Deleted is set if the pair is gone. Then only the fields above and Received are set.
	Deleted bool
	// Stateless is set if the event did not change the pair's state.
	Stateless            bool
	Status               uint32
	Received             int64 // when the backend received it, Unix milliseconds
	Due                  int64 // its deadline, Unix milliseconds; 0 if it has none
	Incident, Resolution bool
	// Changed is set if the status, the flapping or the silencing is another than after the event before, or unknown before.
	Changed     bool
	Silenced    bool
	Deadline    bool // a deadline made the event: nothing was heard
	HasMetrics  bool
	HasHandlers bool // names handlers or pipelines
	// Ran is set for the result of a run: an agent was asked for it, or has the check in its schedule. Deadlines, events
	// that users send and resolutions are none.
	Ran bool
	// Ended names the silences of the event that are over, because it resolves an incident.
	Ended  []string
	Origin string // the backend that wrote the record
	Record []byte

	partition *partition
	body      []byte
	pair      *pair
	wide      []resource.CheckHistory // of a kept pair, if it has a wide history
	event     *resource.Event
}

// Repeats reports whether the event is known to have changed neither status, flapping nor silencing.
func (a *Applied) Repeats() bool { return !a.Changed && !a.Stateless }

// event returns the change of an event that was folded into a pair; pr is nil if it has none.
func (f *Folder) event(pr *pair) *Applied {
	rec, a := &f.rec, &f.applied
	*a = Applied{
		Partition: f.p.id, Seq: f.seq, Sub: f.sub,
		Namespace: rec.Namespace, Entity: rec.Entity, Check: rec.Check,
		Kind:        eventlog.KindEvent,
		Origin:      f.batch.Origin,
		Stateless:   pr == nil,
		Status:      rec.Status,
		Received:    rec.Received,
		Due:         rec.Due,
		Silenced:    rec.Flags&eventlog.FlagSilenced != 0,
		Deadline:    rec.Flags&eventlog.FlagDeadline != 0,
		HasMetrics:  rec.Flags&eventlog.FlagMetrics != 0,
		HasHandlers: rec.Flags&eventlog.FlagHandlers != 0,
		partition:   f.p, body: rec.Body, pair: pr,
	}
	if pr != nil {
		wide := f.p.wideOf(pr)
		a.Incident, a.Resolution = pr.incident(wide), pr.resolution(wide)
		a.Ended, a.Ran, a.Changed = rec.OnResolve, pr.flags&pairRan != 0, f.p.turned
	} else {
		a.Incident = rec.Check != "" && rec.Status != 0
	}
	return a
}

// deleted returns the change of a deletion.
func (f *Folder) deleted(u Update) *Applied {
	f.applied = Applied{
		Partition: f.p.id, Seq: f.seq, Sub: f.sub, Namespace: u.Namespace, Entity: u.Entity, Check: u.Check, Deleted: true,
		Received: f.rec.Received,
	}
	return &f.applied
}

// other returns a record of another package.
func (f *Folder) other() *Applied {
	f.applied = Applied{
		Partition: f.p.id, Seq: f.seq, Sub: f.sub, Kind: f.rec.Kind, Origin: f.batch.Origin, Record: f.rec.Body,
	}
	return &f.applied
}

// Keep returns a copy of the change of an event that may be read for ever. It does not change with the pair.
func (a *Applied) Keep() *Applied {
	kept := *a
	kept.body = bytes.Clone(a.body)
	kept.Ended = slices.Clone(a.Ended)
	if a.pair != nil {
		p := *a.pair
		kept.pair, kept.wide = &p, slices.Clone(a.partition.wideOf(a.pair))
	}
	return &kept
}

// Numbers are what the fold knows of a check behind an event.
type Numbers struct {
	Executed, LastOK                  int64 // Unix seconds
	Occurrences, OccurrencesWatermark int64
	Flapping                          bool
}

// Numbers returns the pair's numbers after the event. They are 0 for an event that has no state.
func (a *Applied) Numbers() Numbers {
	if a.pair == nil {
		return Numbers{}
	}
	wide := a.wide
	if wide == nil {
		wide = a.partition.wideOf(a.pair)
	}
	return Numbers{
		Executed: a.pair.lastExecuted(wide), LastOK: a.pair.lastOK, Occurrences: a.pair.occurrences,
		OccurrencesWatermark: a.pair.watermark, Flapping: a.pair.flags&pairFlapping != 0,
	}
}

// Body is the event in protobuf as it was logged, without its entity if that has a definition.
func (a *Applied) Body() []byte { return a.body }

// ID names the event for ever: it stays the same after a crash and replay.
func (a *Applied) ID() string {
	b := strconv.AppendInt(nil, int64(a.Partition), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, a.Seq, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(a.Sub), 10)
	return string(b)
}

// Event returns the whole event: with its entity, its metrics and the state after it. It is decoded at the first call
// and must not be changed.
func (a *Applied) Event() (*resource.Event, error) {
	if a.event != nil {
		return a.event, nil
	}
	// The pair is read without mu: only the Folder's goroutine writes what is read here.
	ev, err := a.partition.build(a.Namespace, a.Entity, a.body, a.pair, a.wide)
	if err != nil {
		return nil, err
	}
	a.event = ev
	return ev, nil
}

package state

import (
	"sync/atomic"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// received is a record of an event, received at a time in Unix seconds.
func received(at int64, status uint32, change func(*resource.Event)) eventlog.Record {
	ev := &resource.Event{
		Timestamp: at, Metadata: resource.ObjectMeta{Namespace: "default"},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: "c", Namespace: "default"}, Status: status, Executed: at, Issued: at, Interval: 60, Publish: true,
		},
	}
	if change != nil {
		change(ev)
	}
	return eventlog.Record{Entity: "e", Check: "c", Status: status, Received: at * 1000, Executed: at, Body: ev.AppendProto(nil)}
}

// TestRan: deadlines, events of users and resolutions are no runs, also after a restart.
func TestRan(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	var ran atomic.Bool
	b.route = func(a *Applied) { ran.Store(a.Ran) }
	b.open(nil)
	want := func(when string, isRun bool, at int64) {
		t.Helper()
		pairs := b.state.PairsOf("default", "e")
		if ran.Load() != isRun || len(pairs) != 1 || pairs[0].Ran != at {
			t.Errorf("%s: a run: %v, want %v; pairs %+v, want one that ran at %d", when, ran.Load(), isRun, pairs, at)
		}
	}
	b.put(received(1000, 0, nil))
	want("result", true, 1000)
	if p := b.state.PairsOf("default", "e")[0]; p.Status != 0 || p.Executed != 1000 || p.Traits == nil || p.Traits.Interval != 60 {
		t.Errorf("pair %+v with traits %+v", p, p.Traits)
	}
	o, _ := b.state.Overdue(0)
	deadline := received(1060, 1, nil)
	deadline.Flags, deadline.Basis = eventlog.FlagDeadline, o.Position
	b.put(deadline)
	want("deadline", false, 1000)
	b.put(received(1070, 2, func(ev *resource.Event) { ev.Metadata.CreatedBy = "ann" }))
	want("a user's event", false, 1000)
	b.put(received(1080, 0, func(ev *resource.Event) { ev.Check.Issued = 0 }))
	want("resolution", false, 1000)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	want("after a restart", false, 1000)
	b.put(received(1090, 0, nil))
	want("next result", true, 1090)
	b.put(received(1085, 0, nil))
	want("a result that another backend received earlier", true, 1090)
	b.crash()
	b.open(nil)
	want("after a crash", true, 1090)
}

// TestRanOfEarlierVersions: a stored pair without the time of its last run ran when its event was received.
func TestRanOfEarlierVersions(t *testing.T) {
	p := pair{received: 5_000_000, n: 1, timestamp: 7, ran: 4000}
	stored := p.append(nil, nil)
	var again pair
	if _, err := again.decode(stored); err != nil || again.ran != 4000 || again.timestamp != 7 {
		t.Errorf("%+v, %v", again, err)
	}
	// The run takes two bytes, and the timestamp before it one. Older versions stored neither.
	for _, missing := range []int{2, 3} {
		if _, err := again.decode(stored[:len(stored)-missing]); err != nil || again.ran != 5000 {
			t.Errorf("without the last %d bytes: %+v, %v", missing, again, err)
		}
	}
}

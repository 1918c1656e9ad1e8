package state

import (
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestEventsToReturnAgain: as long as a replay must return an event again, neither its pair nor a position behind it is
// stored.
func TestEventsToReturnAgain(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	hour := func(o *Options) { o.WriteDelay = time.Hour }
	b.open(hour)
	p, folder := b.state.parts[0], b.state.Folder(0)
	write := func(want int) {
		t.Helper()
		if n, err := p.writeDue(nowMilli() + 1); err != nil || n != want {
			t.Errorf("wrote %d items, %v, want %d", n, err, want)
		}
	}
	position := func(want uint64) {
		t.Helper()
		if _, err := p.syncPosition(); err != nil {
			t.Fatal(err)
		}
		if next, err := StoredPosition(b.db, 0); err != nil || next != want {
			t.Errorf("a restart replays from message %d, %v, want %d", next, err, want)
		}
	}
	b.put(result(1))
	b.put(result(2))
	b.put(eventlog.Record{Entity: "other", Check: "c", Status: 2, Executed: 3})
	folder.ReturnAgain(2)
	write(0)
	position(1)
	folder.ReturnAgain(3)
	write(1)
	position(3)
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: "e", Check: "c"})
	write(0)
	b.routed = nil
	b.crash()
	b.open(hour)
	if want := []string{"other/c 2 incident=true resolution=false"}; !slices.Equal(b.routed, want) {
		t.Errorf("the replay returned %q, want %q", b.routed, want)
	}
	if _, err := b.state.Event("default", "e", "c"); err == nil {
		t.Error("the replay has not deleted e/c")
	}

	// An event without state moves the position alone.
	p, folder = b.state.parts[0], b.state.Folder(0)
	b.put(eventlog.Record{Entity: "e", Flags: eventlog.FlagStateless | eventlog.FlagMetrics, Body: []byte{}})
	folder.ReturnAgain(5)
	write(4) // the other pair, and what a deleted one leaves
	position(5)
	folder.ReturnAgain(0)
	position(6)
}

// TestHeldPairsStayInFront: pairs that cannot be stored yet hold the log back, also when the commit of later ones fails.
// They are stored in any case when too much would have to be replayed.
func TestHeldPairsStayInFront(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	hour := func(o *Options) { o.WriteDelay = time.Hour }
	b.open(hour)
	hot := func(executed int64) eventlog.Record {
		return eventlog.Record{Entity: "hot", Check: "c", Executed: executed}
	}
	b.put(hot(1))
	b.put(result(2))
	b.put(hot(3))
	p := b.state.parts[0]
	b.state.Folder(0).ReturnAgain(3)
	b.failWriteBack(0)
	if n, err := p.writeDue(nowMilli() + 1); err != nil || n != 1 {
		t.Errorf("wrote %d items, %v, want one", n, err)
	}
	b.crash()
	b.open(hour)
	var executed []int64
	for _, h := range b.get("hot", "c").History {
		executed = append(executed, h.Executed)
	}
	if want := []int64{1, 3}; !slices.Equal(executed, want) {
		t.Errorf("hot/c has the results %v, want %v", executed, want)
	}
	b.wantResults("after the crash", 2)

	p = b.state.parts[0]
	b.state.Folder(0).ReturnAgain(3)
	p.state.share.maxReplay = 1
	b.put(result(4)) // so that more than the bound would have to be replayed
	if n, err := p.writeDue(0); err != nil || n == 0 {
		t.Errorf("wrote %d items, %v, although too much would have to be replayed", n, err)
	}
}

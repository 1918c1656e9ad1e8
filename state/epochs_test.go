package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestRepetitionOfOneOfTwoAgents guards against a false alert: A reports critical, B reports OK, and A sends its
// unacknowledged event again.
func TestRepetitionOfOneOfTwoAgents(t *testing.T) {
	b := newBench(t, 1)
	put := func(epoch, seq uint64, status uint32) {
		b.put(eventlog.Record{Entity: "proxy", Check: "c", Status: status, Flags: eventlog.FlagFromAgent, Epoch: epoch, Sequence: seq,
			Executed: int64(seq)})
	}
	put(1, 5, 2)
	put(2, 9, 0)
	put(1, 5, 2)
	if c := b.get("proxy", "c"); c.Status != 0 || len(c.History) != 2 {
		t.Errorf("status %d after %d results, want 0 after 2: a repetition counted", c.Status, len(c.History))
	}
	if len(b.routed) != 2 {
		t.Errorf("routed %v, want two events", b.routed)
	}
	put(1, 6, 1)
	if c := b.get("proxy", "c"); c.Status != 1 || len(c.History) != 3 {
		t.Errorf("status %d after %d results, want 1 after 3: a new result did not count", c.Status, len(c.History))
	}
}

// TestRepetitionOfADeletedEvent: an agent sends an event again that a user has deleted.
func TestRepetitionOfADeletedEvent(t *testing.T) {
	b := newBench(t, 1)
	event := eventlog.Record{Entity: "e", Check: "c", Status: 2, Flags: eventlog.FlagFromAgent, Epoch: 1, Sequence: 5, Executed: 1}
	b.put(event)
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "e"})
	b.put(event)
	if _, err := b.state.Event("default", "e", "c"); err == nil {
		t.Error("a repetition brought a deleted event back")
	}
	event.Sequence++
	b.put(event)
	b.get("e", "c")
}

// TestMarksAreForgotten: agents come and go for more than a week.
func TestMarksAreForgotten(t *testing.T) {
	b := newBench(t, 1)
	p := b.state.parts[0]
	begin := time.Now()
	const agents = 50
	for day := range 12 {
		for i := range agents {
			epoch := uint64(1 + day*agents + i)
			entity := fmt.Sprint("host-", epoch)
			at := begin.AddDate(0, 0, day).UnixMilli()
			b.append(eventlog.Record{Entity: entity, Check: "c", Flags: eventlog.FlagFromAgent, Epoch: epoch, Sequence: 1, Received: at})
			b.append(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: entity, Received: at})
		}
		b.settle()
		p.sweepMarks()
		if kept, most := len(p.marks.newest), 9*agents; kept > most {
			t.Fatalf("%d marks on day %d, want %d at most", kept, day, most)
		}
	}
	old := eventlog.Record{Entity: "host-1", Check: "c", Flags: eventlog.FlagFromAgent, Epoch: 1, Sequence: 1,
		Received: begin.AddDate(0, 0, 12).UnixMilli()}
	b.put(old) // counts: no mark of it is left
	b.get("host-1", "c")

	// Too many at once: the oldest are dropped.
	ms := newMarkSet()
	for i := range uint64(maxMarks + 1) {
		ms.note(i, mark{seq: 1, pos: i + 1, at: begin.UnixMilli()})
	}
	ms.sweep(begin.UnixMilli())
	if n := len(ms.newest); n > maxMarks*3/4+1 || n < maxMarks/2 {
		t.Errorf("%d marks of %d are left", n, maxMarks+1)
	}
	if _, ok := ms.newest[maxMarks]; !ok {
		t.Error("the newest mark is gone")
	}
}

// append is put without the wait for the fold.
func (b *bench) append(r eventlog.Record) {
	b.t.Helper()
	b.complete(&r)
	if b.appended == nil {
		b.appended = make(ack, 1<<16)
	}
	if err := b.log.Append(&r, b.appended, 0); err != nil {
		b.t.Fatal(err)
	}
	b.waiting++
}

// settle waits until all records of append are folded.
func (b *bench) settle() {
	b.t.Helper()
	for ; b.waiting > 0; b.waiting-- {
		at := <-b.appended
		if err := b.state.WaitFolded(b.t.Context(), int(at[0]), at[1]); err != nil {
			b.t.Fatal(err)
		}
	}
}

// model computes the expected state: each event counts once.
type model struct {
	taken map[[2]uint64]bool         // epochs and numbers
	pairs map[[2]string][]int64      // executed times by entity and check
	dups  map[string]eventlog.Record // by their output, which is different for each append
}

// forget deletes an event. After a crash, earlier events may be routed again: the state does not have them.
func (m *model) forget(entity, check string) {
	delete(m.pairs, [2]string{entity, check})
	maps.DeleteFunc(m.dups, func(_ string, r eventlog.Record) bool { return r.Entity == entity && r.Check == check })
}

// modelAgent has numbered its events, and may send them again from some number on, in order.
type modelAgent struct {
	epoch  uint64
	events []eventlog.Record
	next   int // index into events, to send
}

// TestRecordsCountOnce: several agents report the same entities, send again from any number on and restart; events and
// entities are deleted; crashes happen when part of the state was written. The result must equal a model's.
func TestRecordsCountOnce(t *testing.T) {
	for seed := range uint64(longtest.Size(25, 8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testRecordsCountOnce(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func testRecordsCountOnce(t *testing.T, random *rand.Rand) {
	b := newBench(t, 1)
	m := model{taken: map[[2]uint64]bool{}, pairs: map[[2]string][]int64{}, dups: map[string]eventlog.Record{}}
	bounds := func(o *Options) { o.WriteDelay = time.Hour }
	b.route = func(a *Applied) {
		ev, err := a.Event()
		if err != nil {
			t.Error(err)
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if rec, ok := m.dups[ev.Check.Output]; ok {
			t.Errorf("a repetition was routed: number %d of epoch %d, %s/%s", rec.Sequence, rec.Epoch, rec.Entity, rec.Check)
		}
	}
	_ = b.state.Stop()
	b.open(bounds)
	b.state.writeBatch = 1 + random.IntN(3)

	entities, checks := []string{"p1", "p2"}, []string{"a", "b", "c"}
	epochs, appends, clock := uint64(0), 0, int64(0)
	restart := func(a *modelAgent) { epochs++; *a = modelAgent{epoch: epochs} }
	agents := make([]modelAgent, 3)
	for i := range agents {
		restart(&agents[i])
	}
	send := func(a *modelAgent) {
		if a.next == len(a.events) {
			clock++
			a.events = append(a.events, eventlog.Record{
				Entity: entities[random.IntN(2)], Check: checks[random.IntN(3)], Status: uint32(random.IntN(3)), Executed: clock,
				Flags: eventlog.FlagFromAgent, Epoch: a.epoch, Sequence: 1,
			})
			if n := len(a.events); n > 1 {
				a.events[n-1].Sequence = a.events[n-2].Sequence + 1 + random.Uint64N(2)
			}
		}
		rec := a.events[a.next]
		a.next++
		appends++
		ev := resource.Event{Check: &resource.Check{
			Metadata: resource.ObjectMeta{Name: rec.Check}, Status: rec.Status, Executed: rec.Executed, Output: strconv.Itoa(appends),
		}}
		rec.Body = ev.AppendProto(nil)
		if id := [2]uint64{rec.Epoch, rec.Sequence}; m.taken[id] {
			b.mu.Lock()
			m.dups[ev.Check.Output] = rec
			b.mu.Unlock()
		} else {
			m.taken[id] = true
			k := [2]string{rec.Entity, rec.Check}
			m.pairs[k] = append(m.pairs[k], rec.Executed)
		}
		b.append(rec)
	}
	for range 120 {
		a := &agents[random.IntN(len(agents))]
		switch n := random.IntN(40); {
		case n < 22:
			for range 1 + random.IntN(6) {
				send(a)
			}
		case n < 30:
			a.next = random.IntN(len(a.events) + 1) // a new connection: it sends again what was not acknowledged
		case n < 31:
			restart(a)
		case n < 32:
			e, c := entities[random.IntN(2)], checks[random.IntN(3)]
			b.settle()
			b.mu.Lock()
			m.forget(e, c)
			b.mu.Unlock()
			b.append(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: e, Check: c})
		case n < 33:
			e := entities[random.IntN(2)]
			b.settle()
			b.mu.Lock()
			for _, c := range checks {
				m.forget(e, c)
			}
			b.mu.Unlock()
			b.append(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: e})
		case n < 34:
			clock++
			e, c := entities[random.IntN(2)], checks[random.IntN(3)]
			m.pairs[[2]string{e, c}] = append(m.pairs[[2]string{e, c}], clock)
			b.append(eventlog.Record{Entity: e, Check: c, Executed: clock})
		case n < 38:
			b.settle()
			if _, err := b.state.parts[0].writeSome(nowMilli() + 1); err != nil {
				t.Fatal(err)
			}
		case n < 39:
			b.settle()
			if _, err := b.state.parts[0].syncPosition(); err != nil {
				t.Fatal(err)
			}
		default:
			b.settle()
			b.crash()
			b.open(bounds)
			b.state.writeBatch = 1 + random.IntN(3)
		}
	}
	b.settle()
	compare := func(when string) {
		t.Helper()
		for _, e := range entities {
			for _, c := range checks {
				want := m.pairs[[2]string{e, c}]
				var got []int64
				if ev, err := b.state.Event("default", e, c); err == nil {
					for _, h := range ev.Check.History {
						got = append(got, h.Executed)
					}
				}
				if want = want[max(0, len(want)-historyLen):]; !slices.Equal(got, want) {
					t.Errorf("%s, %s/%s has the results %v, want %v", when, e, c, got, want)
				}
			}
		}
	}
	compare("at the end")
	b.crash()
	b.open(bounds)
	compare("after a crash")
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(bounds)
	compare("after a stop")
}

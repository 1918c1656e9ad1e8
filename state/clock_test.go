package state

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestClockOfAnotherMember: a deadline that was set by a clock an hour ahead passes after its period, in the process
// that folded it, after a restart, and after a crash. The event is of another backend, or of this one before its clock
// was set back.
func TestClockOfAnotherMember(t *testing.T) {
	const period = 60_000
	b := newBench(t, 1)
	_ = b.state.Stop()
	var armed int64
	hour := func(o *Options) {
		o.WriteDelay = time.Hour
		o.Arm = func(_ uint64, due int64) { armed = due }
	}
	b.open(hour)
	check := func(when string, begin, period int64) {
		t.Helper()
		due, ok := b.state.Due(0)
		if end := nowMilli(); !ok || due < begin+period || due > end+period || armed != due {
			t.Errorf("%s the deadline is %d ms from now, and the period %d ms; armed is %d", when, due-end, period, armed-end)
		}
		o, _ := b.state.Overdue(0)
		if o.Due-o.Received < period || o.Received > nowMilli() {
			t.Errorf("%s the event is from %d ms ago, and its period %d ms", when, nowMilli()-o.Received, o.Due-o.Received)
		}
	}
	begin := nowMilli()
	ahead := begin + time.Hour.Milliseconds()
	b.put(eventlog.Record{Entity: "e", Check: "keepalive", Executed: 1, Received: ahead, Due: ahead + period})
	check("in the same process", begin, period)
	b.crash()
	begin = nowMilli()
	b.open(hour)
	check("after a crash", begin, period)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	begin = nowMilli()
	b.open(hour)
	check("after a stop", begin, period)

	// A clock that is behind sets deadlines that pass early. Package intake asks since when the agent could be heard.
	behind := begin - time.Hour.Milliseconds()
	b.put(eventlog.Record{Entity: "e", Check: "keepalive", Executed: 2, Received: behind, Due: behind + period})
	if due, _ := b.state.Due(0); due != behind+period {
		t.Errorf("a deadline of a clock that is behind is %d ms from its own", due-behind-period)
	}
}

// TestClockSetBack: deadlines that were set before this backend's clock was set back do not pass late.
func TestClockSetBack(t *testing.T) {
	const period = 60_000
	b := newBench(t, 1)
	_ = b.state.Stop()
	armed := map[uint64]int64{}
	b.open(func(o *Options) { o.Arm = func(id uint64, due int64) { armed[id] = due } })
	now := nowMilli()
	b.put(eventlog.Record{Entity: "new", Check: "c", Executed: 1, Received: now - 5000, Due: now - 5000 + period})
	b.put(eventlog.Record{Entity: "old", Check: "c", Executed: 1, Received: now - 3_700_000, Due: now + period})
	b.put(eventlog.Record{Entity: "none", Check: "c", Executed: 1, Received: now - 5000})
	back := now - 3_600_000
	b.state.ClockSetBack(back)
	for id, want := range map[uint64]int64{0: back + period, 1: now + period, 2: 0} {
		if due, _ := b.state.Due(id); due != want || armed[id] != want {
			t.Errorf("pair %d has a deadline %d ms after the clock's time, want %d; armed is %d",
				id, due-back, want-back, armed[id]-back)
		}
	}
}

// TestClockSetBackAfterAStart: a start while the clock was ahead has moved the deadlines on. They do not pass late when
// the clock is set right, also in steps. A deadline whose event came since stays.
func TestClockSetBackAfterAStart(t *testing.T) {
	const period = 60_000
	b := newBench(t, 1)
	right := nowMilli() - 3_600_000
	for _, entity := range []string{"dead", "alive"} {
		b.put(eventlog.Record{Entity: entity, Check: "c", Executed: 1, Received: right - 5000, Due: right - 5000 + period})
	}
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	armed := map[uint64]int64{}
	b.open(func(o *Options) { o.Arm = func(id uint64, due int64) { armed[id] = due } })
	b.put(eventlog.Record{Entity: "alive", Check: "c", Executed: 2, Received: right, Due: right + period})
	for _, now := range []int64{right + 1_800_000, right} {
		b.state.ClockSetBack(now)
		want := map[string]int64{"dead": now + period, "alive": right + period}
		for id := range uint64(2) {
			if o, _ := b.state.Overdue(id); o.Due != want[o.Entity] || armed[id] != o.Due {
				t.Errorf("%s has a deadline %d ms after the clock's time, want %d; armed is %d",
					o.Entity, o.Due-now, want[o.Entity]-now, armed[id]-now)
			}
		}
	}
}

// TestRunInTheFuture: a run whose time of receipt is far in the future counts as received now. An earlier process may
// have kept such a time; the next run replaces it.
func TestRunInTheFuture(t *testing.T) {
	b := newBench(t, 1)
	ran := func() (at int64) {
		for pair := range b.state.Pairs("") {
			at = pair.Ran
		}
		return at
	}
	put := func(executed, received int64) {
		ev := resource.Event{Check: &resource.Check{Metadata: resource.ObjectMeta{Name: "cpu"}, Interval: 60, Issued: executed, Executed: executed}}
		b.put(eventlog.Record{Entity: "e", Check: "cpu", Executed: executed, Received: received, Body: ev.AppendProto(nil)})
	}
	now := nowMilli()
	put(1, now+time.Hour.Milliseconds())
	if got := ran(); got > nowMilli()/1000 {
		t.Errorf("the run is %d s in the future", got-nowMilli()/1000)
	}
	p := b.state.parts[0]
	p.mu.Lock()
	p.at(0).ran += 3600
	p.mu.Unlock()
	put(2, now)
	if got := ran(); got < now/1000 || got > nowMilli()/1000 {
		t.Errorf("the next run was at %d, want %d", got, now/1000)
	}
}

package state

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestLateBatches: a backend that was cut off reports what it had, and another one has reported since.
func TestLateBatches(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	registry := prometheus.NewRegistry()
	b.open(func(o *Options) {
		o.Registerer = registry
		o.Late = func(_ int, _ uint64, origin string, roster uint64) bool { return origin == "cut-off" && roster < 7 }
	})
	cutOff := b.another("cut-off")
	cutOff.SetRoster(0, 6)
	b.putTo(cutOff, result(10))
	b.put(result(12)) // the fold reads what others wrote before it
	b.putTo(cutOff, result(11))
	b.putTo(cutOff, result(13))
	cutOff.SetRoster(0, 7)
	b.putTo(cutOff, result(9))
	b.put(result(14))
	b.wantResults("with an older and a newer one of late batches, and an older one of a member", 10, 12, 13, 9, 14)
	if n := gather(t, registry)["lapwing_events_late_total"]; n != 1 {
		t.Errorf("%v late results are counted, want 1", n)
	}
}

// TestLateDeadline: that an agent is silent counts also if the log gets it late, unless the agent was heard since. The
// clock of the backend that heard it last was ahead.
func TestLateDeadline(t *testing.T) {
	b := newBench(t, 1)
	_ = b.state.Stop()
	b.open(func(o *Options) {
		o.Late = func(_ int, _ uint64, origin string, _ uint64) bool { return origin == "cut-off" }
	})
	cutOff := b.another("cut-off")
	b.put(result(300))
	o, _ := b.state.Overdue(0)
	deadline := result(20)
	deadline.Flags, deadline.Basis, deadline.Status = eventlog.FlagDeadline, o.Position, 1
	other := result(1)
	other.Check = "other"
	for _, when := range []string{"with the deadline", "with one that the pair has passed"} {
		b.putTo(cutOff, deadline)
		b.put(other) // the fold reads what others wrote before it
		b.wantResults(when, 300, 20)
	}
}

// TestOriginOfAPair: a deadline is watched by the backend through which the pair was last heard.
func TestOriginOfAPair(t *testing.T) {
	b := newBench(t, 1)
	one := b.another("one")
	origin := func(check string) string {
		t.Helper()
		p := b.state.parts[0]
		p.mu.Lock()
		slot, ok := p.find("default", "e", check)
		p.mu.Unlock()
		if !ok {
			t.Fatal("there is no pair")
		}
		o, _ := b.state.Overdue(p.pairID(slot))
		return o.Origin
	}
	want := func(check, want string) {
		t.Helper()
		if got := origin(check); got != want {
			t.Errorf("%s was heard through %q, want %q", check, got, want)
		}
	}
	b.put(result(1))
	want("c", "here")
	b.putTo(one, result(2))
	other := result(3)
	other.Check = "other"
	b.put(other)
	want("c", "one")
	want("other", "here")
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	want("c", "")
}

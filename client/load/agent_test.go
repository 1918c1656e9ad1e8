package load

import (
	"log/slog"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client/load/report"
)

// TestHoldsBack: results wait for others while their checks stay OK, and not for longer than the batch delay.
func TestHoldsBack(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	ok, failing := &check{id: 1}, &check{id: 2}
	for name, tc := range map[string]struct {
		delay time.Duration
		due   []result
		since int // second in which the oldest was held back; -1 if there is none
		want  bool
	}{
		"stays OK":            {5 * time.Second, []result{{check: ok, n: 2}}, -1, true},
		"stays OK, not ripe":  {5 * time.Second, []result{{check: ok, n: 2}}, 6, true},
		"ripe":                {5 * time.Second, []result{{check: ok, n: 2}}, 5, false},
		"the first":           {5 * time.Second, []result{{check: ok, n: 1}}, -1, false},
		"fails":               {5 * time.Second, []result{{check: failing, n: 2}}, -1, false},
		"one of several does": {5 * time.Second, []result{{check: ok, n: 2}, {check: failing, n: 2}}, 9, false},
		"without delay":       {0, []result{{check: ok, n: 2}}, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := NewFleet(FleetOptions{
				Backends: []string{"ws://127.0.0.1:1"}, Protocol: ProtocolLapwing, BaseName: "a", Count: 1, KeepaliveInterval: time.Minute,
				BatchDelay: tc.delay, Seed: 1, Mix: []Share{{0, 1}, {2, 1}},
			}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			a := f.agents[0]
			for ok.id = 1; a.status(&result{check: ok}, 1) > 0; ok.id++ {
			}
			for failing.id = 1; a.status(&result{check: failing}, 1) == 0; failing.id++ {
			}
			if tc.since >= 0 {
				a.ripe = at(tc.since).Add(tc.delay)
			}
			if got := a.holdsBack(tc.due, at(10)); got != tc.want {
				t.Errorf("held back: %v", got)
			}
			if want := at(10).Add(tc.delay); tc.since < 0 && tc.want && !a.ripe.Equal(want) {
				t.Errorf("ripe at %v, want %v", a.ripe, want)
			}
		})
	}
}

// TestHeldBackIsNotLate: the acknowledgement of a result that was held back on purpose is measured from the end of that
// time.
func TestHeldBackIsNotLate(t *testing.T) {
	f, err := NewFleet(FleetOptions{
		Backends: []string{"ws://127.0.0.1:1"}, Protocol: ProtocolLapwing, BaseName: "a", Count: 1, KeepaliveInterval: time.Minute,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, now := f.agents[0], time.Now()
	a.unacked = []unacked{{sequence: 1, sent: now.Add(-20 * time.Second)}, {sequence: 2, sent: now.Add(-15 * time.Second)}}
	a.ripe = now.Add(-15 * time.Second)
	a.writing = now // the socket is full
	if err := a.sendWaiting(); err != nil {
		t.Fatal(err)
	}
	for _, u := range a.unacked {
		if got := now.Sub(u.sent); got != 15*time.Second {
			t.Errorf("result %d counts as %v old", u.sequence, got)
		}
	}
	if !a.ripe.IsZero() || f.measures.latencies[report.LatencyAck] == nil {
		t.Error("results are still held back")
	}
}

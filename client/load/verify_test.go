package load

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"
)

// stored is an event as the API shows it.
func stored(t *testing.T, sequence, occurrences int64, status uint32, history ...uint32) []storedEvent {
	t.Helper()
	type entry map[string]any
	var entries []entry
	for i, s := range history {
		entries = append(entries, entry{"status": s, "executed": 100 + 10*i})
	}
	b, err := json.Marshal([]entry{{"sequence": sequence, "check": entry{
		"metadata": entry{"name": "cpu"}, "status": status, "occurrences": occurrences, "history": entries,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var events []storedEvent
	if err := json.Unmarshal(b, &events); err != nil {
		t.Fatal(err)
	}
	return events
}

func TestCompare(t *testing.T) {
	f, err := NewFleet(FleetOptions{
		Backends: []string{"ws://127.0.0.1:1"}, Protocol: ProtocolSensu, Count: 1, BaseName: "a", KeepaliveInterval: time.Minute,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.numbers["cpu"] = 0
	pairs := []pair{{n: 3}}
	check := func(name string, want Verdict, events []storedEvent) {
		t.Helper()
		got := f.compare(f.agents[0], pairs, events)
		if want.Lost+want.Duplicates+want.OrderViolations > 0 && len(got.Problems) == 0 {
			t.Errorf("%s: nothing is said of it", name)
		}
		got.Problems = nil
		if got.Pairs != want.Pairs || got.Verified != want.Verified || got.Lost != want.Lost || got.Duplicates != want.Duplicates || got.OrderViolations != want.OrderViolations {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	check("as sent", Verdict{Pairs: 1, Verified: 1}, stored(t, 3, 3, 0, 0, 0, 0))
	check("unknown", Verdict{Pairs: 1, Lost: 3}, nil)
	check("the last one is missing", Verdict{Pairs: 1, Verified: 1, Lost: 1}, stored(t, 2, 2, 0, 0, 0))
	check("one in the middle is missing", Verdict{Pairs: 1, Verified: 1, Lost: 1}, stored(t, 3, 2, 0, 0, 0))
	check("one came twice", Verdict{Pairs: 1, Verified: 1, Duplicates: 1}, stored(t, 3, 4, 0, 0, 0, 0, 0))
	check("another history", Verdict{Pairs: 1, Verified: 1, OrderViolations: 1}, stored(t, 3, 3, 0, 0, 1, 0))
	back := stored(t, 3, 3, 0, 0, 0, 0)
	back[0].Check.History[0].Executed = 500
	check("times go back", Verdict{Pairs: 1, Verified: 1, OrderViolations: 1}, back)
}

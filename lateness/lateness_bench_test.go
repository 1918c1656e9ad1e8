package lateness

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// BenchmarkFollow times what the follower adds to the fold of an event:
//
//	go test ./lateness -run xxx -bench Follow -benchmem -count 6
func BenchmarkFollow(b *testing.B) {
	runs := NewRuns(1)
	checks := map[string]*run{}
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint("check-", i))
		checks[names[i]] = new(run)
	}
	runs.checks.Store(&table{"default": checks})
	// One Applied, as in the fold: only its check and its time change.
	follow := func(b *testing.B, ran bool, names ...string) {
		b.ReportAllocs()
		a := state.Applied{Namespace: "default", Entity: "web1", Ran: ran}
		for next := 0; b.Loop(); next++ {
			if next == len(names) {
				next = 0
			}
			a.Check = names[next]
			a.Received++
			runs.Follow(&a)
		}
	}
	b.Run("one check", func(b *testing.B) { follow(b, true, names[0]) })
	b.Run("20 checks in turn", func(b *testing.B) { follow(b, true, names[:20]...) })
	b.Run("10,000 checks in turn", func(b *testing.B) { follow(b, true, names...) })
	b.Run("not defined", func(b *testing.B) { follow(b, true, state.KeepaliveCheck) })
	b.Run("no run", func(b *testing.B) { follow(b, false, names[0]) })
}

// memory is a State with events.
type memory struct{ pairs []state.Pair }

func (m *memory) Pairs(string) iter.Seq[state.Pair] {
	return func(yield func(state.Pair) bool) {
		for _, p := range m.pairs {
			if !yield(p) {
				return
			}
		}
	}
}

func (m *memory) PairsOf(string, string) []state.Pair { return nil }

// BenchmarkLook times a look at 10,000 checks, and a search for overdue events among 400,000, of which all are.
func BenchmarkLook(b *testing.B) {
	sn := config.Empty()
	long := time.Now().Add(-5 * time.Minute)
	events := &memory{}
	for i := range 10_000 {
		c := minutely(fmt.Sprint("check-", i))
		if i%2 == 0 {
			c.Interval, c.Cron = 0, "* * * * *"
		}
		sn = config.With(sn, config.Checks, c)
		traits := resource.TraitsOfEvent(&resource.Event{Check: resource.CheckOf(c)})
		for e := range 40 {
			events.pairs = append(events.pairs, state.Pair{Namespace: "default", Entity: fmt.Sprint("web", e), Check: c.Metadata.Name,
				Published: true, Ran: long.Unix() + int64(e%5), Traits: traits})
		}
	}
	w, err := New(Options{
		Snapshot: func() *config.Snapshot { return sn }, Written: func(_, _ string) time.Time { return long }, Runs: NewRuns(1), State: events,
		HeardFor: func(time.Time) time.Duration { return time.Hour }, Agents: func(context.Context, []resource.Name) Agents { return Agents{HeardFor: time.Hour} },
		Proxies: func(*resource.CheckConfig) (int, bool) { return 0, false },
		Report:  func(context.Context, string, string, uint32, string) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	w.began = long.Add(-time.Hour)
	w.look(context.Background())
	b.Run("10,000 checks", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w.look(context.Background())
		}
	})
	b.Run("400,000 events", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if late, err := w.Events(context.Background(), ""); err != nil || len(late) != 400_000 {
				b.Fatal(len(late), err)
			}
		}
	})
}

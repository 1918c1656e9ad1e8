package eventlog_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestRate: after a burst of one second's worth, records are written no faster than the rate.
func TestRate(t *testing.T) {
	const perSecond = 9 << 20 // more than the largest message
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 2, MaxRate: perSecond})
	var acks tally
	begin := time.Now()
	const records, size = 90, 256 << 10
	for n := range records {
		acks.all.Add(1)
		if err := l.Append(sized(event("e"+string(rune('a'+n%7)), "c", n), size), &acks, uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, &acks)
	// The last commit of each partition comes before its pause. A commit has at most half of the buffer and one
	// record.
	const free = perSecond + 2*(3<<20/2+size+1<<10)
	if took, least := time.Since(begin), time.Duration(records*size-free)*time.Second/perSecond; took < least {
		t.Errorf("%d bytes took %s, less than %s", records*size, took, least)
	}
}

// TestRateDoesNotHoldUpKeepalives: while the rate allows no results, keepalives are written. The log stops at once.
func TestRateDoesNotHoldUpKeepalives(t *testing.T) {
	registry := prometheus.NewRegistry()
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, MaxRate: 1, Registerer: registry})
	var acks tally
	acks.all.Add(2)
	for n := range 2 { // after the second the rate is used up for weeks
		if err := l.Append(sized(event("e", "c", n), 6<<20), &acks, uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, &acks)
	for deadline := time.Now().Add(patience); l.Room(0); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the rate is used up, and there is room for results")
		}
	}
	if err := l.TryAppend(event("e", "late", 2), nil, 0); !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("a result past the rate: %v", err)
	}
	acks.all.Add(1)
	if err := l.TryAppend(keepalive(1), &acks, 1001); err != nil {
		t.Errorf("a keepalive past the rate: %v", err)
	}
	settled(t, &acks)
	if value(t, registry, "lapwing_eventlog_held_seconds_total") == 0 {
		t.Error("no pause was counted")
	}
	waits := make(chan error, 1)
	go func() { waits <- l.Append(event("e", "late", 3), nil, 0) }()
	for deadline := time.Now().Add(patience); waited(l) == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("a result does not wait")
		}
	}
	if err := l.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("a result that waited: %v", err)
	}
}

// waited returns how long the oldest result or keepalive has been waiting.
func waited(l *eventlog.Log) time.Duration {
	others, _ := l.Waited(time.Now())
	return others
}

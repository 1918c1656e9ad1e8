package eventlog_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/eventlog"
)

// TestRate: what is written comes no faster than the rate allows, once as much as a second allows was written at once.
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
	// The last commit of each partition comes before its pause. A commit has half of the buffer and one record at most.
	const free = perSecond + 2*(3<<20/2+size+1<<10)
	if took, least := time.Since(begin), time.Duration(records*size-free)*time.Second/perSecond; took < least {
		t.Errorf("%d bytes took %s, less than %s", records*size, took, least)
	}
}

// TestRateDoesNotHoldUpTheEnd: a log that has to pause for long stops at once.
func TestRateDoesNotHoldUpTheEnd(t *testing.T) {
	registry := prometheus.NewRegistry()
	l, _ := start(t, t.TempDir(), eventlog.Options{Partitions: 1, MaxRate: 1, Registerer: registry})
	var acks tally
	for n := range 3 {
		acks.all.Add(1)
		if err := l.Append(sized(event("e", "c", n), 6<<20), &acks, uint64(n)); err != nil {
			t.Fatal(err)
		}
		if n == 1 { // after the second the rate is used up for weeks
			for deadline := time.Now().Add(patience); value(t, registry, "lapwing_eventlog_held_seconds_total") == 0; {
				if time.Now().After(deadline) {
					t.Fatalf("the log has not paused in %s", patience)
				}
				runtime.Gosched()
			}
		}
	}
	if err := l.Stop(); err != nil {
		t.Fatal(err)
	}
	settled(t, &acks)
	if n := len(read(t, l, 0, 1)); n != 3 {
		t.Errorf("%d records were stored, want 3", n)
	}
}

package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// TestTurnsAreForgotten: round-robin checks come and go.
func TestTurnsAreForgotten(t *testing.T) {
	var turns turns
	now := time.Now()
	count := func() (n int) {
		turns.latest.Range(func(any, any) bool { n++; return true })
		return n
	}
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	for i := range 1000 {
		turns.took("default", fmt.Sprint("gone-", i), at(0), at(time.Minute))
	}
	turns.took("default", "stays", at(2*time.Hour), at(2*time.Hour+time.Minute))
	turns.took("default", "stays", at(time.Hour), at(time.Hour+time.Minute)) // came late
	turns.forget(now.Add(30 * time.Minute))
	if n := count(); n != 1001 {
		t.Errorf("%d checks are known, want all: a deadline may still ask", n)
	}
	turns.forget(now.Add(2 * time.Hour))
	if n := count(); n != 1 {
		t.Errorf("%d checks are known, want the one that goes on", n)
	}
	o := state.Overdue{
		Namespace: "default", Check: "stays", Received: at(90 * time.Minute),
		Event: &resource.Event{Check: &resource.Check{RoundRobin: true}},
	}
	if !turns.passed(&o) {
		t.Error("a later turn is not known")
	}
}

package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestFleetIsSpreadOverTheInterval: in each second of its interval a check runs on about equally many hosts. An agent
// keeps its phases across sessions, the distances between its checks, and its moment in the second.
func TestFleetIsSpreadOverTheInterval(t *testing.T) {
	s := bareServer(time.Second)
	one := &assignment{every: 10_000, phase: 3000}
	another := &assignment{every: 10_000, phase: 8000}
	minutely := &assignment{every: 60_000, phase: 17_000}
	var ten [10]int
	var sixty [60]int
	const agents = 12_000
	for i := range agents {
		a, again := s.newSession(nil, "default", fmt.Sprint("web-", i)), s.newSession(nil, "default", fmt.Sprint("web-", i))
		first := one.entry(a.offset, a.shift).PhaseMillis
		if later := one.entry(again.offset, again.shift).PhaseMillis; first != later {
			t.Fatalf("agent %d has the phase %d, and %d in its next session", i, first, later)
		}
		if distance := (another.entry(a.offset, a.shift).PhaseMillis + 10_000 - first) % 10_000; distance != 5000 {
			t.Fatalf("agent %d runs its checks %d ms apart, want 5000", i, distance)
		}
		if first%1000 != uint64(a.offset) || first >= 10_000 {
			t.Fatalf("agent %d, whose moment is %d ms, has the phase %d ms", i, a.offset, first)
		}
		ten[first/1000]++
		sixty[minutely.entry(a.offset, a.shift).PhaseMillis/1000]++
	}
	for second, n := range ten {
		if n < agents/10*9/10 || n > agents/10*11/10 {
			t.Errorf("%d of %d agents run the check in second %d of 10", n, agents, second)
		}
	}
	for second, n := range sixty {
		if n < agents/60*6/10 || n > agents/60*14/10 {
			t.Errorf("%d of %d agents run the check in second %d of 60", n, agents, second)
		}
	}
}

// TestPhasesThatAreChosen: ticks of a cron line are not shifted, and no tick is if the operator wants no spread.
func TestPhasesThatAreChosen(t *testing.T) {
	spread, none := bareServer(time.Second), bareServer(0)
	cron, interval := &assignment{}, &assignment{every: 10_000, phase: 3000}
	for i := range 100 {
		a, b := spread.newSession(nil, "default", fmt.Sprint("web-", i)), none.newSession(nil, "default", fmt.Sprint("web-", i))
		for _, tc := range []struct {
			entry wire.ScheduleEntry
			want  uint64
		}{
			{cron.entry(a.offset, a.shift), uint64(a.offset)}, {cron.entry(b.offset, b.shift), 0}, {interval.entry(b.offset, b.shift), 3000},
		} {
			if tc.entry.PhaseMillis != tc.want {
				t.Errorf("agent %d: phase %d ms, want %d", i, tc.entry.PhaseMillis, tc.want)
			}
		}
	}
}

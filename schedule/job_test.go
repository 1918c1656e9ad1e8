package schedule

import (
	"testing"
	"time"
)

func TestIssue(t *testing.T) {
	const second, ms = int64(time.Second), int64(time.Millisecond)
	j := new(job)
	for _, tc := range []struct {
		why             string
		tick, now, want int64
	}{
		{"on time", 100*second + 990*ms, 100*second + 991*ms, 100},
		{"the next second has begun", 101*second + 990*ms, 102*second + 15*ms, 101},
		{"on time after a late one", 102*second + 990*ms, 102*second + 991*ms, 102},
		{"much too late", 110 * second, 115*second + 500*ms, 115},
		{"in the same second as that", 115*second + 900*ms, 115*second + 900*ms, 116},
		{"the clock was set back", 50 * second, 50 * second, 117},
		{"it has caught up", 200 * second, 200 * second, 200},
	} {
		if got := j.issue(tc.tick, tc.now); got != tc.want {
			t.Errorf("%s: issued %d, want %d", tc.why, got, tc.want)
		}
	}
}

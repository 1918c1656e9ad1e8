package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCarbonOnAFullDisk takes the free disk of a carbon server away, first below --metric-min-free-disk and then all of it.
// Points are dropped and counted, queries are answered, and points are taken again once there is room.
func TestCarbonOnAFullDisk(t *testing.T) {
	t.Parallel()
	c := newCarbon(t, "--metric-min-free-disk", fmt.Sprint(400<<20)) // the last of two flags counts
	mountSmall(t, c.state(), 700<<20)
	c.start()
	now := time.Now().Unix() / 10 * 10
	has := func(name string, value float64) {
		t.Helper()
		eventually(t, time.Minute, name+" is there", func() bool {
			s := c.render(fmt.Sprint(now-1), fmt.Sprint(now), name)
			return len(s) == 1 && valuesOf(&s[0])[now] == value
		})
	}
	send := func(name string, value int) {
		t.Helper()
		sendTo(t, c.line, fmt.Appendf(nil, "%s %d %d\n", name, value, now))
	}
	send("disk.before", 1)
	has("disk.before", 1)
	full := func(want float64) func() bool {
		return func() bool { return c.metric("lapwing_metric_store_disk_full") == want }
	}
	dropped := func() float64 { return c.metric("lapwing_metric_store_dropped_points_total", "reason=disk_full") }
	ballast := filepath.Join(c.state(), "ballast")
	for round, free := range []uint64{300 << 20, 0} {
		leaveFree(t, ballast, free)
		eventually(t, time.Minute, "the server sees that the disk is full", full(1))
		before := dropped()
		for i := range 100 {
			send(fmt.Sprintf("disk.lost%d", i), i)
		}
		eventually(t, time.Minute, "the points are counted as dropped", func() bool { return dropped() >= before+100 })
		has("disk.before", 1)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "the server sees the room", full(0))
		name := fmt.Sprint("disk.after", round)
		send(name, 2)
		has(name, 2)
	}
	if bad := c.errorsSince(0); len(bad) != 2 {
		t.Errorf("the log has %d errors, want one each time the disk was full: %q", len(bad), bad)
	}
}

package ctl

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestFor: the column For of top shows how long a check has failed, even if the event's history is shorter.
func TestFor(t *testing.T) {
	const minute, hour = int64(60), int64(3600)
	now := int64(1_800_000_000)
	// results are a history of one result a minute, the newest now.
	results := func(n int, status func(i int) uint32) (history []resource.CheckHistory) {
		for i := range n {
			history = append(history, resource.CheckHistory{Status: status(i), Executed: now - int64(n-1-i)*minute})
		}
		return history
	}
	failed := func(int) uint32 { return 2 }
	for name, tt := range map[string]struct {
		check resource.Check
		want  string
	}{
		"the history has the last that was OK": {resource.Check{
			History: results(21, func(i int) uint32 { return uint32(min(i, 11) / 11) }), LastOK: now - 10*minute, Occurrences: 10,
		}, "9m"},
		"a warning became critical": {resource.Check{
			History: results(10, func(i int) uint32 { return uint32(min(i, 9) - min(i, 8) + 1) }), Occurrences: 1,
		}, "9m"},
		"it passed before the history": {resource.Check{
			History: results(21, failed), LastOK: now - 30*hour - minute, Occurrences: 1800,
		}, "1d6h"},
		"cron, and it passed before the history": {resource.Check{
			History: results(21, failed), LastOK: now - 30*hour, Cron: "* * * * *", Occurrences: 1800,
		}, "1d6h"},
		"never passed, from the first result on":     {resource.Check{History: results(5, failed), Occurrences: 5}, "4m"},
		"never passed, and the history is too short": {resource.Check{History: results(21, failed), Occurrences: 3*60 + 1}, ">3h"},
		"never passed, and the status changed":       {resource.Check{History: results(21, failed), Occurrences: 2}, ">20m"},
		"never passed, faster than its interval": {resource.Check{
			History: results(21, failed), Interval: 300, Occurrences: 3*60 + 1,
		}, ">3h"},
		"never passed, slower than its interval": {resource.Check{
			History: results(21, failed), Interval: 30, Occurrences: 4*60 + 1,
		}, ">2h"},
		"Sensu without a history": {resource.Check{Occurrences: 7}, "0s"},
	} {
		tt.check.Status, tt.check.Executed = 2, now
		if tt.check.Interval == 0 && tt.check.Cron == "" {
			tt.check.Interval = 60
		}
		if got := failingOf(&event{Check: &tt.check}).text(time.Unix(now, 0)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

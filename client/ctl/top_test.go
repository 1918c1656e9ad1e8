package ctl

import (
	"strings"
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

// TestTopFits: no line of top is longer than the terminal, no value is lost in 80 cells, and the lines fit the height.
func TestTopFits(t *testing.T) {
	now := look{at: time.Unix(1_800_000_345, 0), metrics: map[string]float64{
		"lapwing_agent_sessions": 40000, "lapwing_state_pairs": 123456, "lapwing_config_objects": 2345,
		"lapwing_handler_queue_depth": 1234, "lapwing_handler_queue_spilled": 995, "lapwing_handler_parked": 100_000,
		"lapwing_handler_retrying": 99_999, "lapwing_handler_dead_letters": 250_000, "lapwing_handler_shed_total": 1_000_374,
		"lapwing_state_lag_seconds": 0.3,
	}}
	for range 30 {
		now.incidents = append(now.incidents, &event{
			Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: "db-東京-1.example.org", Namespace: "production"}},
			Check: &resource.Check{
				Metadata: resource.ObjectMeta{Name: "disk-usage"}, Status: 2, Executed: 1_800_000_340, IsSilenced: true,
				Output:  strings.Repeat("/var/lib/postgresql is full, ", 9) + "\nmore",
				History: []resource.CheckHistory{{}, {Status: 2, Executed: 1_800_000_000}, {Status: 2, Executed: 1_800_000_340}},
			},
		})
	}
	for _, width := range []int{60, 80, 120, 200} {
		top := &top{invocation: &invocation{settings: &settings{url: "http://lapwing.example.org:8080"}}, last: now}
		lines := top.view(now, width, 24)
		if len(lines) > 24 {
			t.Errorf("width %d: %d lines", width, len(lines))
		}
		for _, line := range lines {
			if n := displayWidth(line); n > width {
				t.Errorf("width %d: a line has %d cells: %s", width, n, line)
			}
		}
		text := strings.Join(lines, "\n")
		for _, want := range []string{"agents 40000", "definitions 2345", "memory 1234", "disk 995", "parked 100000",
			"retrying 99999", "dead 250000", "shed 1000374", "lag 0.3 s", "silenced 30", "CRITICAL   5m45s   db-東京", "… and "} {
			if !strings.Contains(text, want) {
				t.Errorf("width %d: no %q in\n%s", width, want, text)
			}
		}
	}
}

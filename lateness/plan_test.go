package lateness

import (
	"testing"
	"time"
	"unsafe"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// at is a time on 3 March 2025, a Monday, in UTC.
func at(clock string) int64 {
	t, err := time.Parse(time.DateTime, "2025-03-03 "+clock)
	if err != nil {
		panic(err)
	}
	return t.UnixNano()
}

func TestCount(t *testing.T) {
	night := []resource.TimeWindowRepeated{{Begin: "2025-01-01T10:00:00Z", End: "2025-01-01T11:59:59Z", Repeat: []string{"daily"}}}
	check := func(interval, timeout uint32, cron string, subdues []resource.TimeWindowRepeated) *resource.CheckConfig {
		return &resource.CheckConfig{Interval: interval, Timeout: timeout, Cron: cron, Subdues: subdues}
	}
	f := func(name string, c *resource.CheckConfig, last, now string, missed int, first string) {
		t.Helper()
		p := newPlan(c, &Options{Grace: 10 * time.Second, Queued: func(time.Duration) time.Duration { return 90 * time.Second }})
		o := p.overdueSince(at(last))
		o.count(p, at(now), mostOverdue)
		var want int64
		if first != "" {
			want = at(first)
		}
		if o.runs != missed || o.first != want {
			t.Errorf("%s: last run %s, now %s: %d are missing since %s, want %d since %s", name, last, now, o.runs,
				time.Unix(0, o.first).UTC().Format(time.TimeOnly), missed, first)
		}
		again := p.overdueSince(at(last)) // in small steps
		for step := at(last); step < at(now); step += int64(7 * time.Second) {
			again.count(p, step, mostOverdue)
		}
		if again.count(p, at(now), mostOverdue); again.runs != o.runs || again.first != o.first {
			t.Errorf("%s: in steps %+v, at once %+v", name, again, o)
		}
	}
	minute := check(60, 20, "", nil)
	f("interval", minute, "12:00:05", "12:01:04", 0, "")
	f("interval, the run is under way", minute, "12:00:05", "12:01:24", 0, "")
	f("interval, the timeout is over", minute, "12:00:05", "12:01:25", 1, "12:01:05")
	f("interval", minute, "12:00:05", "12:03:25", 3, "12:01:05")
	f("short timeout", check(60, 1, "", nil), "12:00:05", "12:01:14", 0, "")
	f("short timeout", check(60, 1, "", nil), "12:00:05", "12:01:15", 1, "12:01:05")
	f("no timeout", check(60, 0, "", nil), "12:00:05", "12:02:04", 0, "")
	f("no timeout", check(60, 0, "", nil), "12:00:05", "12:02:05", 1, "12:01:05")
	f("no timeout, short interval", check(1, 0, "", nil), "12:00:05", "12:00:16", 1, "12:00:06")
	f("every", check(0, 20, "@every 1m", nil), "12:00:05", "12:03:25", 3, "12:01:05")
	f("very late", check(1, 0, "", nil), "00:00:00", "23:00:00", mostOverdue, "00:00:01")

	f("subdued", check(600, 30, "", night), "09:55:00", "12:04:00", 0, "")
	f("subdued until the first", check(600, 30, "", night), "09:55:00", "12:14:59", 0, "")
	f("subdued until the first", check(600, 30, "", night), "09:55:00", "12:15:30", 1, "12:15:00")
	f("subdued in between", check(600, 30, "", night), "09:45:00", "12:15:31", 2, "09:55:00")

	hourly := check(0, 60, "TZ=UTC 0 * * * *", nil)
	f("cron", hourly, "12:00:30", "13:00:30", 0, "")
	f("cron", hourly, "12:00:30", "13:01:00", 1, "13:00:00")
	f("cron", hourly, "12:00:30", "15:30:00", 3, "13:00:00")
	f("cron without timeout", check(0, 0, "TZ=UTC 0 * * * *", nil), "12:00:30", "13:59:59", 0, "")
	f("cron without timeout", check(0, 0, "TZ=UTC 0 * * * *", nil), "12:00:30", "14:00:00", 1, "13:00:00")
	f("subdued cron", check(0, 60, "TZ=UTC 0 * * * *", night), "09:00:30", "12:30:00", 1, "12:00:00")
	short := []resource.TimeWindowRepeated{{Begin: "2025-01-01T10:00:30Z", End: "2025-01-01T10:01:00Z", Repeat: []string{"daily"}}}
	f("subdued before the counted tick", check(3600, 30, "", short), "09:30:00", "10:45:00", 0, "")
	f("subdued before the counted tick", check(3600, 30, "", short), "09:30:00", "11:30:30", 1, "11:30:00")
	// Ticks at 59:50, of which two are subdued.
	early := []resource.TimeWindowRepeated{{Begin: "2025-01-01T02:30:00Z", End: "2025-01-01T04:00:00Z", Repeat: []string{"daily"}}}
	f("subdued until after the true tick", check(3600, 20, "", early), "02:00:10", "05:00:10", 0, "")
	f("subdued until after the true tick", check(3600, 20, "", early), "02:00:10", "05:59:59", 1, "05:00:10")
	f("always subdued", check(1, 1, "", []resource.TimeWindowRepeated{{Begin: "2000-01-01T00:00:00Z", End: "2000-01-01T23:59:59Z",
		Repeat: []string{"daily"}}}), "00:00:00", "23:00:00", 0, "")
	turns := check(60, 20, "", nil)
	turns.RoundRobin = true
	f("round robin", turns, "12:00:05", "12:02:34", 0, "")
	f("round robin", turns, "12:00:05", "12:02:35", 1, "12:01:05")
	f("never", check(0, 60, "0 0 31 2 *", nil), "09:00:30", "12:30:00", 0, "")
}

// TestCountIsShort: a count takes a bounded number of steps, however long a check was subdued.
func TestCountIsShort(t *testing.T) {
	f := func(name string, c *resource.CheckConfig, last string, runs int, first string) {
		t.Helper()
		p := newPlan(c, &Options{Grace: time.Second})
		if o := p.overdueSince(at(last)); true {
			o.count(p, at("23:00:10"), mostOverdue)
			if o.runs != runs || o.first != at(first) {
				t.Errorf("%s: %+v", name, o)
			}
		}
		steps := mostSteps
		if p.subduedUntil(at(last)+int64(p.every), &steps); steps < mostSteps-10 {
			t.Errorf("%s: %d steps", name, mostSteps-steps)
		}
	}
	once := []resource.TimeWindowRepeated{{Begin: "2025-03-01T00:00:00Z", End: "2025-03-03T22:59:59Z"}}
	f("one long subdue", &resource.CheckConfig{Interval: 1, Timeout: 1, Subdues: once}, "00:00:00", 9, "23:00:01")
	night := []resource.TimeWindowRepeated{{Begin: "2025-01-01T00:00:00Z", End: "2025-01-01T05:59:59Z", Repeat: []string{"daily"}}}
	f("each night", &resource.CheckConfig{Interval: 1, Timeout: 1, Subdues: night}, "00:00:00", mostOverdue, "06:00:01")
	f("each night, cron", &resource.CheckConfig{Cron: "TZ=UTC * * * * *", Timeout: 1, Subdues: night}, "00:00:00", mostOverdue, "06:00:00")
}

func TestPlanWithoutSchedule(t *testing.T) {
	for _, cron := range []string{"", "every day"} {
		if p := newPlan(&resource.CheckConfig{Cron: cron}, &Options{}); p != nil {
			t.Errorf("cron %q has the plan %+v", cron, p)
		}
	}
}

func TestOverdueWords(t *testing.T) {
	interval, cron := newPlan(&resource.CheckConfig{Interval: 1}, &Options{}), newPlan(&resource.CheckConfig{Cron: "* * * * *"}, &Options{})
	f := func(p *plan, missed int, want string) {
		t.Helper()
		if got := p.words(missed); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(interval, 1, "overdue by 1 interval")
	f(interval, 3, "overdue by 3 intervals")
	f(interval, mostOverdue, "overdue by 100 intervals or more")
	f(cron, 1, "overdue by 1 run")
	f(cron, 2, "overdue by 2 runs")
	f(newPlan(&resource.CheckConfig{Cron: "@every 5s"}, &Options{}), 2, "overdue by 2 intervals")
}

func TestCursorFillsACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(cursor{}); size != 64 {
		t.Errorf("a cursor has %d bytes", size)
	}
}

package timetable

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestIntervalPhase: the wanted values were computed independently, with big integers.
func TestIntervalPhase(t *testing.T) {
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	for name, want := range map[string]int64{
		"check-cpu":  43,
		"check-disk": 16,
		"dns":        0,
		"ntp":        50,
		"ping":       13,
		"load":       55,
	} {
		i, err := New(&resource.CheckConfig{Metadata: resource.ObjectMeta{Name: name}, Interval: 60}, MD5)
		if err != nil {
			t.Fatal(err)
		}
		tick := now.Add(time.Duration(want) * time.Second).UnixNano()
		for _, at := range []int64{tick - int64(time.Minute), tick - 1} {
			if got := i.Next(at); got != tick {
				t.Errorf("%s: next after %d is %d, want %d", name, at, got, tick)
			}
		}
		if got := i.Next(tick); got != tick+int64(time.Minute) {
			t.Errorf("%s: after the tick at %d comes %d", name, tick, got)
		}
	}
}

// TestPhases: an agent gets a phase in milliseconds, which need not be of whole seconds.
func TestPhases(t *testing.T) {
	i := Interval(7_652*time.Millisecond, 10*time.Second)
	at := int64(0)
	for n := range int64(1000) {
		at = i.Next(at)
		if want := 7_652 + n*10_000; at != want*1e6 {
			t.Fatalf("tick %d at %d ms, want %d", n, at/1e6, want)
		}
	}
}

func TestLatest(t *testing.T) {
	at := func(s string) int64 {
		t.Helper()
		when, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixNano()
	}
	for _, tc := range []struct {
		cron            string
		tick, now, want string
		skipped         int64
	}{
		{"", "2026-01-01T00:00:05.5Z", "2026-01-01T00:00:05.5Z", "2026-01-01T00:00:05.5Z", 0},
		{"", "2026-01-01T00:00:05.5Z", "2026-01-01T00:00:15.4Z", "2026-01-01T00:00:05.5Z", 0},
		{"", "2026-01-01T00:00:05.5Z", "2026-01-01T00:00:15.5Z", "2026-01-01T00:00:15.5Z", 1},
		{"", "1970-01-01T00:00:05.5Z", "2026-01-01T00:00:12Z", "2026-01-01T00:00:05.5Z", 176722560},
		{"@daily", "2026-01-01T00:00:00Z", "2026-01-01T23:59:59Z", "2026-01-01T00:00:00Z", 0},
		{"@daily", "2026-01-01T00:00:00Z", "2026-01-04T01:00:00Z", "2026-01-04T00:00:00Z", 3},
		{"* * * * *", "1970-01-01T00:00:00Z", "2026-01-01T00:00:12Z", "1970-01-07T22:40:00Z", 10_000},
	} {
		times := Interval(5500*time.Millisecond, 10*time.Second)
		if tc.cron != "" {
			times = cronTable(t, "TZ=UTC "+tc.cron)
		}
		newest, skipped := times.Latest(at(tc.tick), at(tc.now))
		if newest != at(tc.want) || skipped != tc.skipped {
			t.Errorf("%q from %s to %s: %s, %d skipped, want %s, %d", tc.cron, tc.tick, tc.now,
				time.Unix(0, newest).UTC().Format(time.RFC3339Nano), skipped, tc.want, tc.skipped)
		}
	}
}

func cronTable(t *testing.T, spec string) Timetable {
	t.Helper()
	times, err := New(&resource.CheckConfig{Metadata: resource.ObjectMeta{Name: "c"}, Cron: spec}, MD5)
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func TestCron(t *testing.T) {
	for _, tc := range []struct {
		spec, from string
		want       []string
	}{
		{"TZ=UTC */15 3 * * *", "2026-03-01T03:20:00Z", []string{"2026-03-01T03:30:00Z", "2026-03-01T03:45:00Z", "2026-03-02T03:00:00Z"}},
		{"TZ=Asia/Kolkata 0 9 * * mon-fri", "2026-11-20T04:00:00Z", []string{"2026-11-23T03:30:00Z", "2026-11-24T03:30:00Z"}},
		// Berlin puts its clocks forward on 29 March at 2:00 and back on 25 October at 3:00.
		{"CRON_TZ=Europe/Berlin 0 4 * * *", "2026-03-28T00:00:00Z", []string{"2026-03-28T03:00:00Z", "2026-03-29T02:00:00Z", "2026-03-30T02:00:00Z"}},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T00:00:00Z", []string{"2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"}},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
		{"CRON_TZ=Europe/Berlin 0 * * * *", "2026-10-25T00:00:00Z", []string{"2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"}},
		{"TZ=UTC @monthly", "2026-01-31T12:00:00Z", []string{"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"}},
	} {
		times := cronTable(t, tc.spec)
		from, err := time.Parse(time.RFC3339, tc.from)
		if err != nil {
			t.Fatal(err)
		}
		at := from.UnixNano()
		for _, want := range tc.want {
			at = times.Next(at)
			if got := time.Unix(0, at).UTC().Format(time.RFC3339); got != want {
				t.Errorf("%s from %s: %s, want %s", tc.spec, tc.from, got, want)
			}
		}
	}
	if at := cronTable(t, "0 0 31 2 *").Next(0); at != Never {
		t.Errorf("31 February is at %d", at)
	}
}

func TestTimetableRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                    "neither interval nor cron",
		"TZ=UTC":              "only a time zone",
		"CRON_TZ=UTC":         "only a time zone",
		"TZ=Mars/Olympus * *": "Mars/Olympus",
		"* * * *":             "expected exactly 5 fields",
		"60 * * * *":          "above maximum",
		"@fortnightly":        "unrecognized descriptor",
		"@every x":            "failed to parse duration",
	} {
		_, err := New(&resource.CheckConfig{Cron: spec}, MD5)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("cron %q: %v, want %q", spec, err, want)
		}
	}
}

func FuzzParseCron(f *testing.F) {
	for _, spec := range []string{"* * * * *", "TZ=UTC 0 0 1 1 *", "CRON_TZ=", "@every 5m", "@daily", "1-5/2,7 * * feb mon"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		times, err := New(&resource.CheckConfig{Cron: spec}, MD5)
		if err != nil {
			return
		}
		if next := times.Next(1_795_237_200e9); next <= 1_795_237_200e9 {
			t.Errorf("%q: next is %d", spec, next)
		}
	})
}

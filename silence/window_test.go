package silence

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// compile reads a silence of the check c that begins at a time.
func compile(t *testing.T, begin string, windows ...resource.SilenceWindow) *Rule {
	t.Helper()
	r, err := Compile(&resource.Silenced{Check: "c", Begin: instant(t, begin).Unix(), Windows: windows}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWindows checks times on both sides of the beginnings and ends. All are in UTC.
func TestWindows(t *testing.T) {
	const berlin = "Europe/Berlin" // one hour ahead in winter, two from 2026-03-29 01:00 to 2026-10-25 01:00
	for _, tc := range []struct {
		name, begin string
		windows     []resource.SilenceWindow
		in, out     string // times, with commas
	}{
		{"cron", "2026-01-01 00:00:00", []resource.SilenceWindow{{Cron: "0 22 * * 6", Duration: 7200}},
			"2026-11-21 22:00:00,2026-11-21 23:59:59", "2026-11-21 21:59:59,2026-11-22 00:00:00,2026-11-20 22:30:00"},
		{"cron in a time zone", "2026-01-01 00:00:00", []resource.SilenceWindow{{Cron: "0 2 * * *", TimeZone: berlin, Duration: 3600}},
			"2026-01-10 01:00:00,2026-01-10 01:59:59,2026-07-10 00:00:00,2026-07-10 00:59:59", "2026-01-10 00:59:59,2026-01-10 02:00:00,2026-07-10 01:00:00"},
		{"not before the silence begins", "2026-02-01 12:00:00", []resource.SilenceWindow{{Cron: "0 * * * *", Duration: 1800}},
			"2026-02-01 13:00:00", "2026-02-01 11:10:00"},
		{"rule", "2026-01-03 20:00:00", []resource.SilenceWindow{{RRule: "FREQ=MONTHLY;BYDAY=1SA", Duration: 3600}},
			"2026-01-03 20:00:00,2026-02-07 20:30:00,2026-11-07 20:59:59", "2026-02-07 19:59:59,2026-02-07 21:00:00,2026-02-14 20:30:00"},
		{"rule in a time zone", "2026-01-05 20:00:00", []resource.SilenceWindow{{RRule: "FREQ=WEEKLY;BYDAY=MO", TimeZone: berlin, Duration: 600}},
			"2026-01-12 20:05:00,2026-07-06 19:05:00", "2026-07-06 20:05:00,2026-01-13 20:05:00"},
		{"rule with an end and exceptions", "2026-01-01 00:00:00", []resource.SilenceWindow{{RRule: "DTSTART:20260101T080000Z\nRRULE:FREQ=DAILY;UNTIL=20260105T080000Z\nEXDATE:20260103T080000Z", Duration: 60}},
			"2026-01-01 08:00:30,2026-01-05 08:00:30", "2026-01-03 08:00:30,2026-01-06 08:00:30"},
		{"several", "2026-01-01 00:00:00", []resource.SilenceWindow{{Cron: "0 8 * * *", Duration: 3600}, {Cron: "0 20 * * *", Duration: 3600}},
			"2026-01-02 08:30:00,2026-01-02 20:30:00", "2026-01-02 12:00:00,2026-01-02 23:00:00"},
		{"one in another", "2026-01-01 00:00:00", []resource.SilenceWindow{{Cron: "0 * * * *", Duration: 5400}},
			"2026-01-02 08:00:00,2026-01-02 08:59:00,2026-01-02 09:45:00", ""},
	} {
		r := compile(t, tc.begin, tc.windows...)
		for _, order := range []bool{true, false} { // the cached answer for one time must not apply to another
			check := func(times string, want bool) {
				for text := range strings.SplitSeq(times, ",") {
					if text != "" && r.Holds(instant(t, text)) != want {
						t.Errorf("%s: at %s it is %v", tc.name, text, !want)
					}
				}
			}
			check(tc.in, true)
			check(tc.out, false)
			if order {
				check(tc.in, true)
			}
		}
	}
}

func TestSpans(t *testing.T) {
	f := func(r *Rule, now, want string) {
		t.Helper()
		var got []string
		for _, s := range r.Spans(instant(t, now), 3) {
			text := s.Begins.UTC().Format("0102 1504") + "-"
			if !s.Ends.IsZero() {
				text += s.Ends.UTC().Format("0102 1504")
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("from %s on: %s, want %s", now, strings.Join(got, ", "), want)
		}
	}
	nightly := resource.SilenceWindow{Cron: "0 2 * * *", Duration: 3600}
	f(compile(t, "2026-01-01 00:00:00"), "2026-03-01 00:00:00", "0301 0000-")
	f(compile(t, "2026-04-01 00:00:00"), "2026-03-01 00:00:00", "0401 0000-")
	f(compile(t, "2026-01-01 00:00:00", nightly), "2026-03-01 02:30:00", "0301 0230-0301 0300, 0302 0200-0302 0300, 0303 0200-0303 0300")
	f(compile(t, "2026-01-01 00:00:00", nightly, resource.SilenceWindow{Cron: "0 3 * * *", Duration: 60}), "2026-03-01 00:00:00", "0301 0200-0301 0301, 0302 0200-0302 0301, 0303 0200-0303 0301")
	ended := compile(t, "2026-01-01 00:00:00", nightly)
	ended.silence.ExpireAt = instant(t, "2026-03-02 02:10:00").Unix()
	f(ended, "2026-03-01 00:00:00", "0301 0200-0301 0300, 0302 0200-0302 0210")
	f(ended, "2026-03-03 00:00:00", "")
	// Adjoining windows are one.
	f(compile(t, "2026-01-01 00:00:00", resource.SilenceWindow{Cron: "0 * * * *", Duration: 3600}), "2026-03-01 00:30:00", "0301 0030-")
}

// FuzzWindow searches for rules that take long to parse or to expand.
func FuzzWindow(f *testing.F) {
	for _, seed := range [][2]string{
		{"0 22 * * 6", ""}, {"@daily", ""}, {"TZ=", ""}, {"", "FREQ=WEEKLY;BYDAY=MO,TU;BYHOUR=1,2"}, {"", "DTSTART;TZID=Europe/Berlin:20260101T000000\nRRULE:FREQ=HOURLY;INTERVAL=3"},
		{"", "RRULE:FREQ=YEARLY;BYEASTER=0\nEXDATE:20260101T000000Z"}, {"", "FREQ=DAILY;COUNT=0"}, {"", "FREQ=YEARLY;BYSETPOS=-1;BYDAY=MO"}, {"", "\n"}, {"0 0 30 2 *", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, cron, rule string) {
		s := &resource.Silenced{
			Metadata: resource.ObjectMeta{Namespace: "default"}, Check: "c", Begin: time.Now().Unix(),
			Windows: []resource.SilenceWindow{{Cron: cron, RRule: rule, Duration: 60}},
		}
		if s.Validate() != nil {
			return
		}
		r, err := Compile(s, nil)
		if err != nil {
			return
		}
		begin := time.Now()
		now := begin.Add(time.Hour)
		for _, span := range r.Spans(now, 2) {
			if !r.Holds(span.Begins) {
				t.Errorf("%q %q: does not hold at %s", cron, rule, span.Begins)
			}
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%q %q took %s", cron, rule, took)
		}
	})
}

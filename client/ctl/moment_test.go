package ctl

import (
	"strings"
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		now, err := time.ParseInLocation(time.DateTime, text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	autumn, spring := at("2026-10-26 09:00:00"), at("2026-03-29 12:00:00")
	for _, tc := range []struct {
		now                time.Time
		text, since, until string // until is "" if it is the same
	}{
		{autumn, "30d", "2026-09-26T08:00:00Z", ""},
		{autumn, "1w1d12h", "2026-10-17T20:00:00Z", ""},
		{autumn, "90m", "2026-10-26T06:30:00Z", ""},
		{autumn, "1792000000", "2026-10-14T17:46:40Z", ""},
		{autumn, "2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z", ""},
		{autumn, "today", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"},
		{autumn, "yesterday", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"}, // 25 hours
		{autumn, "2026-10-25", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{autumn, "2026-10-24", "2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z"},
		{autumn, "2026-10-24 23:59", "2026-10-24T21:59:00Z", ""},
		{autumn, "2026-10-25T23:59", "2026-10-25T22:59:00Z", ""},
		{autumn, "2026-10-25 23:59:30", "2026-10-25T22:59:30Z", ""},
		{autumn, "00:30", "2026-10-25T23:30:00Z", ""},
		{autumn, "08:15:05", "2026-10-26T07:15:05Z", ""},
		{spring, "today", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"}, // 23 hours
		{spring, "yesterday", "2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z"},
		{spring, "01:59", "2026-03-29T00:59:00Z", ""},
		{spring, "03:00", "2026-03-29T01:00:00Z", ""},
		{at("2026-01-01 00:10:00"), "yesterday", "2025-12-30T23:00:00Z", "2025-12-31T23:00:00Z"},
		{autumn, "", "", ""}, {autumn, "d", "", ""}, {autumn, "-1d", "", ""}, {autumn, "-1h", "", ""}, {autumn, "last week", "", ""},
		{autumn, "0", "1970-01-01T00:00:00Z", ""}, {autumn, "5", "", ""}, {autumn, "20261026", "", ""}, {autumn, "100000000", "1973-03-03T09:46:40Z", ""},
		{autumn, "2026-13-01", "", ""}, {autumn, "25:00", "", ""},
	} {
		for flag, want := range map[string]string{"since": tc.since, "until": tc.until} {
			if want == "" {
				want = tc.since
			}
			got, err := moment(flag, tc.text, berlin, tc.now)
			switch {
			case want == "" && (err == nil || !strings.HasPrefix(err.Error(), "--"+flag+": ")):
				t.Errorf("--%s %q: %v, %v, want an error", flag, tc.text, got, err)
			case want != "" && (err != nil || got.UTC().Format(time.RFC3339) != want):
				t.Errorf("--%s %q: %v, %v, want %s", flag, tc.text, got, err, want)
			}
		}
	}
}

func TestSentMoments(t *testing.T) {
	zone := time.FixedZone("", 2*60*60)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, zone)
	since, until := "30d", "2026-10-24"
	if err := sentMoments(&since, &until, zone, now); err != nil || since != "30d" || until != "2026-10-25T00:00:00+02:00" {
		t.Errorf("%q, %q, %v", since, until, err)
	}
	for _, since := range []string{"26d", "2026-10-25"} { // since and until are one moment for the second
		until := "2026-10-24"
		if err := sentMoments(&since, &until, zone, now); err == nil {
			t.Errorf("--since %q is not before --until %q, but there was no error", since, until)
		}
	}
}

func TestWeek(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ now, text, since, until string }{
		{"2026-10-26T09:00:00+01:00", "this", "2026-10-26T00:00:00+01:00", "2026-11-02T00:00:00+01:00"}, // a Monday
		{"2026-10-26T09:00:00+01:00", "last", "2026-10-19T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"2026-11-01T23:00:00Z", "this", "2026-11-02T00:00:00+01:00", "2026-11-09T00:00:00+01:00"}, // Monday in Berlin
		{"2026-11-01T22:00:00Z", "last", "2026-10-19T00:00:00+02:00", "2026-10-26T00:00:00+01:00"}, // Sunday
		{"2026-10-26T09:00:00+01:00", "2026-W01", "2025-12-29T00:00:00+01:00", "2026-01-05T00:00:00+01:00"},
		{"2026-10-26T09:00:00+01:00", "2026-W53", "2026-12-28T00:00:00+01:00", "2027-01-04T00:00:00+01:00"},
		{text: "2025-W53"}, {text: "2026-W00"}, {text: "2026-W54"}, {text: "2026-W1"}, {text: "2026-47"}, {text: "47"}, {text: "2026-W47x"}, {text: ""},
	} {
		now, _ := time.Parse(time.RFC3339, tc.now)
		since, until, err := week(tc.text, berlin, now)
		if (err != nil) != (tc.since == "") {
			t.Errorf("%q at %s: %v", tc.text, tc.now, err)
		}
		if err == nil && (since.Format(time.RFC3339) != tc.since || until.Format(time.RFC3339) != tc.until) {
			t.Errorf("%q at %s: from %s to %s, want from %s to %s", tc.text, tc.now, since, until, tc.since, tc.until)
		}
	}
}

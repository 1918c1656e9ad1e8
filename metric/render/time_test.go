package render

import (
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 50, 30, 0, time.UTC) // a Saturday
	for _, c := range []struct{ in, want string }{
		{"now", "2026-11-21 03:50:30"},
		{"", "2026-11-21 03:50:30"},
		{"-1d12h", "2026-11-19 15:50:30"},
		{"-2mon", "2026-09-22 03:50:30"},
		{"now-6h", "2026-11-20 21:50:30"},
		{"NOW - 6H", "2026-11-20 21:50:30"},
		{"04:00_20110501", "2011-05-01 04:00:00"},
		{"noon yesterday", "2026-11-20 12:00:00"},
		{"noon_yesterday", "2026-11-20 12:00:00"},
		{"monday", "2026-11-16 00:00:00"},
		{"saturday", "2026-11-21 00:00:00"},
		{"sunday", "2026-11-15 00:00:00"},
		{"january 1", "2026-01-01 00:00:00"},
		{"jan1", "2026-01-01 00:00:00"},
		{"10/12/25", "2025-10-12 00:00:00"},
		{"10/12/1999", "1999-10-12 00:00:00"},
		{"10/12/99", "1999-10-12 00:00:00"},
		{"midnight+6h", "2026-11-21 06:00:00"},
		{"midnight", "2026-11-21 00:00:00"},
		{"teatime", "2026-11-21 16:00:00"},
		{"20091201", "2009-12-01 00:00:00"},
		{"99999999", "1973-03-03 09:46:39"},
		{"1423931224", "2015-02-14 16:27:04"},
		{"today", "2026-11-21 00:00:00"},
		{"tomorrow", "2026-11-22 00:00:00"},
		{"6pm today", "2026-11-21 18:00:00"},
		{"6am", "2026-11-21 06:00:00"},
		{"12pm", "2026-11-21 00:00:00"},
		{"12:30am", "2026-11-21 12:30:00"},
		{"08:15", "2026-11-21 08:15:00"},
		{"8:50pm yesterday", "2026-11-20 20:50:00"},
		{"-7days", "2026-11-14 03:50:30"},
		{"-1w", "2026-11-14 03:50:30"},
		{"-1y", "2025-11-21 03:50:30"},
		{"+1min", "2026-11-21 03:51:30"},
		{"yesterday-1h", "2026-11-19 23:00:00"},
	} {
		got, err := ParseTime(c.in, now, nil)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		} else if g := got.Format(time.DateTime); g != c.want {
			t.Errorf("%q: got %s, want %s", c.in, g, c.want)
		}
	}
	for _, in := range []string{"-5m", "6pm+today", "nosuchday", "25:00", "12:61", "01/02", "13/01/26", "02/30/26",
		"20260231", "jan", "january 99", "20231115_00:00", "-99999999999999999999d", "-999999999y", "12:3", "-", "+-1d", "-d",
		"99999999999999999999"} {
		if got, err := ParseTime(in, now, nil); err == nil {
			t.Errorf("%q: got %s, want an error", in, got)
		}
	}
}

func TestParseTimeZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	now := time.Date(2026, 11, 21, 23, 30, 0, 0, time.UTC)
	for in, want := range map[string]string{"midnight": "2026-11-21T23:00:00Z", "20260701": "2026-06-30T22:00:00Z",
		"now": "2026-11-21T23:30:00Z"} {
		got, err := ParseTime(in, now, berlin)
		if g := got.UTC().Format(time.RFC3339); err != nil || g != want {
			t.Errorf("%q: got %s, %v, want %s", in, g, err, want)
		}
	}
}

func TestParseInterval(t *testing.T) {
	for in, want := range map[string]time.Duration{"5min": 5 * time.Minute, "1d": 24 * time.Hour, "-1h": -time.Hour,
		"90s": 90 * time.Second, "1d12h": 36 * time.Hour, "2weeks": 14 * 24 * time.Hour, "1month": 30 * 24 * time.Hour,
		"1year": 365 * 24 * time.Hour, "10seconds": 10 * time.Second, "+3minutes": 3 * time.Minute, "0s": 0} {
		if got, err := ParseInterval(in); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-", "5", "5m", "min", "1.5h", "5 min", "999999999999y", "300y300y", "1d-1h"} {
		if got, err := ParseInterval(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, got)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"-1d12h", "noon yesterday", "10/12/25", "04:00_20110501", "midnight+6h",
		"january 1", "12pm"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		now := time.Date(2026, 11, 21, 3, 50, 30, 0, time.UTC)
		if got, err := ParseTime(s, now, time.UTC); err == nil && got.Location() != time.UTC {
			t.Errorf("%q is in %v", s, got.Location())
		}
		_, _ = ParseInterval(s)
	})
}

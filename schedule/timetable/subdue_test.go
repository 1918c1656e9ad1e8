package timetable

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestSubdue has a block for each word of repeat. November 2026 begins on a Sunday.
func TestSubdue(t *testing.T) {
	type in = map[string]bool
	for _, tc := range []struct {
		name, begin, end string
		repeat           []string
		at               in
	}{
		{"no repeat", "2026-11-10T09:00:00Z", "2026-11-11T17:00:00Z", nil, in{
			"2026-11-10T08:59:59.9Z": false,
			"2026-11-10T09:00:00Z":   true,
			"2026-11-10T23:00:00Z":   true,
			"2026-11-11T17:00:00Z":   true,
			"2026-11-11T17:00:00.9Z": true,
			"2026-11-11T17:00:01Z":   false,
			"2026-11-17T12:00:00Z":   false,
		}},
		{"no length", "2026-11-10T09:00:00Z", "2026-11-10T09:00:00Z", nil, in{
			"2026-11-10T09:00:00.5Z": true,
			"2026-11-10T09:00:01Z":   false,
		}},
		{"daily", "2026-11-10T09:00:00Z", "2026-11-10T17:00:00Z", []string{"daily"}, in{
			"2026-11-09T12:00:00Z":   false,
			"2026-11-10T12:00:00Z":   true,
			"2026-11-15T08:59:59Z":   false,
			"2026-11-15T09:00:00Z":   true,
			"2026-11-15T17:00:00.9Z": true,
			"2026-11-15T17:00:01Z":   false,
			"2031-02-28T12:00:00Z":   true,
		}},
		{"daily over midnight is cut off", "2026-11-10T22:00:00Z", "2026-11-11T06:00:00Z", []string{"daily"}, in{
			"2026-11-12T21:59:59Z": false,
			"2026-11-12T23:59:59Z": true,
			"2026-11-13T00:00:00Z": false,
			"2026-11-13T05:00:00Z": false,
		}},
		{"daily in another offset", "2026-11-10T22:00:00+05:30", "2026-11-10T23:00:00+05:30", []string{"daily"}, in{
			"2026-11-12T16:29:59Z": false,
			"2026-11-12T16:30:00Z": true,
			"2026-11-12T17:30:00Z": true,
			"2026-11-12T22:30:00Z": false,
		}},
		{"a weekday", "2026-11-03T22:00:00Z", "2026-11-04T06:00:00Z", []string{"tuesdays"}, in{
			"2026-11-03T22:00:00Z": true,
			"2026-11-10T22:00:00Z": true,
			"2026-11-11T06:00:00Z": true, // Wednesday
			"2026-11-11T06:00:01Z": false,
			"2026-11-11T22:00:00Z": false,
			"2026-10-27T22:00:00Z": false, // before begin
		}},
		{"saturdays do not reach into Sunday", "2026-11-07T22:00:00Z", "2026-11-08T06:00:00Z", []string{"saturdays"}, in{
			"2026-11-14T23:59:59Z": true,
			"2026-11-15T00:00:00Z": false,
		}},
		{"sundays", "2026-11-01T22:00:00Z", "2026-11-02T06:00:00Z", []string{"sundays"}, in{
			"2026-11-08T22:00:00Z": true,
			"2026-11-09T05:00:00Z": true,
			"2026-11-10T05:00:00Z": false,
		}},
		{"mondays, wednesdays, thursdays, fridays", "2026-11-01T10:00:00Z", "2026-11-01T11:00:00Z", []string{"mondays", "wednesdays", "thursdays", "fridays"}, in{
			"2026-11-08T10:30:00Z": false,
			"2026-11-09T10:30:00Z": true,
			"2026-11-10T10:30:00Z": false,
			"2026-11-11T10:30:00Z": true,
			"2026-11-12T10:30:00Z": true,
			"2026-11-13T10:30:00Z": true,
			"2026-11-14T10:30:00Z": false,
		}},
		{"weekly", "2026-11-05T10:00:00Z", "2026-11-05T11:00:00Z", []string{"weekly"}, in{ // a Thursday
			"2026-11-05T10:30:00Z": true,
			"2026-11-12T10:30:00Z": true,
			"2026-11-11T10:30:00Z": false,
			"2026-11-13T10:30:00Z": false,
		}},
		{"weekly by the day of begin's offset", "2026-11-05T23:00:00-05:00", "2026-11-05T23:30:00-05:00", []string{"weekly"}, in{
			"2026-11-13T04:10:00Z": true, // Friday in UTC, Thursday there
			"2026-11-12T04:10:00Z": false,
		}},
		{"weekdays", "2026-11-01T20:00:00Z", "2026-11-02T04:00:00Z", []string{"weekdays"}, in{
			"2026-11-08T20:30:00Z": false, // Sunday
			"2026-11-09T03:00:00Z": false, // Monday, of Sunday's span
			"2026-11-09T20:30:00Z": true,
			"2026-11-13T20:30:00Z": true,
			"2026-11-14T04:00:00Z": true, // Saturday, of Friday's span
			"2026-11-14T20:30:00Z": false,
		}},
		{"weekends", "2026-11-01T20:00:00Z", "2026-11-02T04:00:00Z", []string{"weekends"}, in{
			"2026-11-08T20:30:00Z": true,  // Sunday
			"2026-11-09T03:00:00Z": true,  // Monday, of Sunday's span
			"2026-11-14T20:30:00Z": true,  // Saturday
			"2026-11-15T03:00:00Z": false, // Sunday, of Saturday's span
			"2026-11-10T20:30:00Z": false,
		}},
		{"monthly", "2026-10-31T09:00:00Z", "2026-10-31T10:00:00Z", []string{"monthly"}, in{
			"2026-10-31T09:30:00Z": true,
			"2026-11-30T09:30:00Z": false,
			"2026-12-31T09:30:00Z": true,
			"2026-12-31T08:59:59Z": false,
			"2026-09-30T09:30:00Z": false,
			"2026-08-31T09:30:00Z": false, // before begin
		}},
		{"monthly over midnight is cut off", "2026-10-05T22:00:00Z", "2026-10-06T04:00:00Z", []string{"monthly"}, in{
			"2026-11-05T23:59:59Z": true,
			"2026-11-06T00:00:00Z": false,
		}},
		{"annually", "2026-11-10T09:00:00Z", "2026-11-10T10:00:00Z", []string{"annually"}, in{
			"2026-11-10T09:30:00Z": true,
			"2027-11-10T09:30:00Z": true,
			"2027-11-11T09:30:00Z": false,
			"2027-10-10T09:30:00Z": false,
			"2025-11-10T09:30:00Z": false,
		}},
		{"several words", "2026-11-10T09:00:00Z", "2026-11-10T10:00:00Z", []string{"monthly", "weekends"}, in{
			"2026-12-10T09:30:00Z": true,
			"2026-12-12T09:30:00Z": true,
			"2026-12-11T09:30:00Z": false,
		}},
	} {
		p, err := readSubdue(&resource.TimeWindowRepeated{Begin: tc.begin, End: tc.end, Repeat: tc.repeat})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for at, want := range tc.at {
			when, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				t.Fatal(err)
			}
			if got := Subdued([]Subdue{p}, when); got != want {
				t.Errorf("%s: subdued at %s is %v, want %v", tc.name, at, got, want)
			}
		}
	}
}

// TestSubdueKeepsItsOffset: a period in the backend's own offset must not follow its daylight saving.
func TestSubdueKeepsItsOffset(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	local := time.Local
	time.Local = berlin
	defer func() { time.Local = local }()
	p, err := readSubdue(&resource.TimeWindowRepeated{Begin: "2026-01-10T09:00:00+01:00", End: "2026-01-10T10:00:00+01:00", Repeat: []string{"daily"}})
	if err != nil {
		t.Fatal(err)
	}
	if at := time.Date(2026, 7, 1, 8, 30, 0, 0, time.UTC); !p.active(at) {
		t.Errorf("not active at %s", at)
	}
	if at := time.Date(2026, 7, 1, 7, 30, 0, 0, time.UTC); p.active(at) {
		t.Errorf("active at %s", at)
	}
}

func TestReadSubdueRefuses(t *testing.T) {
	const begin, end = "2026-11-10T09:00:00Z", "2026-11-10T10:00:00Z"
	for _, w := range []resource.TimeWindowRepeated{
		{},
		{Begin: begin},
		{Begin: "2026-11-10 09:00", End: end},
		{Begin: end, End: begin},
		{Begin: begin, End: end, Repeat: []string{"fortnightly"}},
	} {
		if p, err := readSubdue(&w); err == nil {
			t.Errorf("%+v was read as %+v", w, p)
		}
	}
}

package lateness

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCalendarsExcuse: ticks that a calendar suppresses need no result, and those behind them do.
func TestCalendarsExcuse(t *testing.T) {
	store := testconfig.Store(t)
	lunch, err := calendar.New(nil).Draft(store.Snapshot(), &resource.Calendar{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "lunch"}, TimeZone: "Europe/Berlin", // an hour ahead
		Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "12:00", End: "13:00"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	opts := &Options{Grace: 10 * time.Second, Calendar: func(string, string) *calendar.Calendar { return lunch }}
	for _, tc := range []struct {
		cron      string
		last, now string
		missed    int
		first     string
	}{
		{"", "10:55:00", "12:04:00", 0, ""},
		{"", "10:55:00", "12:15:31", 1, "12:15:00"}, // the distance before the tick must be free
		{"", "10:45:00", "12:15:31", 2, "10:55:00"},
		{"TZ=UTC */10 * * * *", "10:50:05", "12:00:29", 0, ""},
		{"TZ=UTC */10 * * * *", "10:50:05", "12:00:31", 1, "12:00:00"},
	} {
		def := &resource.CheckConfig{Cron: tc.cron, Timeout: 30, Calendars: &resource.CheckCalendars{NotWithin: []string{"lunch"}}}
		if tc.cron == "" {
			def.Interval = 600
		}
		p := newPlan(def, opts)
		o := p.overdueSince(at(tc.last))
		o.count(p, at(tc.now), mostOverdue)
		first := ""
		if o.first != 0 {
			first = time.Unix(0, o.first).UTC().Format(time.TimeOnly)
		}
		if o.runs != tc.missed || first != tc.first {
			t.Errorf("%+v: %d are missing since %s", tc, o.runs, first)
		}
	}
}

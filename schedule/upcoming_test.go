package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestUpcoming: the next runs are those that the scheduler would publish, and what keeps a check from running is named.
func TestUpcoming(t *testing.T) {
	nights := daily(t, "22:00", "06:00")
	work, err := calendar.New(nil).Draft(config.Empty(), &resource.Calendar{Metadata: resource.ObjectMeta{Namespace: "default", Name: "work"},
		Windows: []resource.CalendarWindow{{RRule: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", Begin: "08:00", End: "18:00"}},
		Except:  []resource.CalendarWindow{{Dates: []string{"2026-11-30 St Andrew"}}}})
	if err != nil {
		t.Fatal(err)
	}
	b := &Scheduler{defs: &memory{calendars: map[string]*calendar.Calendar{"nights": nights, "work": work}}}
	from := time.Date(2026, 11, 27, 21, 59, 30, 0, time.UTC) // a Friday
	at := func(unix int64) string { return time.Unix(unix, 0).UTC().Format("02 15:04:05") }
	for name, c := range map[string]struct {
		edit func(*resource.CheckConfig)
		want string
	}{
		"an interval": {func(c *resource.CheckConfig) { c.Interval = 20 }, "27 21:59:4, 27 22:00:0, 27 22:00:2"},
		"a cron":      {func(c *resource.CheckConfig) { c.Interval, c.Cron = 0, "CRON_TZ=Europe/Berlin 0 6 * * 1-5" }, "30 05:00:00, 01 05:00:00, 02 05:00:00"},
		"a subdue": {func(c *resource.CheckConfig) {
			c.Interval, c.Cron = 0, "*/10 * * * *"
			c.Subdues = []resource.TimeWindowRepeated{{Begin: "2026-11-27T22:00:00Z", End: "2026-11-27T22:29:59Z", Repeat: []string{"daily"}}}
		}, "(27 22:00:00-27 22:30:00 subdued) 27 22:30:00, 27 22:40:00, 27 22:50:00"},
		"not in a calendar": {func(c *resource.CheckConfig) {
			c.Interval, c.Cron, c.Calendars = 0, "0 * * * *", &resource.CheckCalendars{NotWithin: []string{"nights"}}
		}, "(27 22:00:00-28 06:00:00 in calendar nights) 28 06:00:00, 28 07:00:00, 28 08:00:00"},
		"only in a calendar": {func(c *resource.CheckConfig) {
			c.Interval, c.Cron, c.Calendars = 0, "59 5,12,22 * * *", &resource.CheckCalendars{RunWithin: []string{"nights"}}
		}, "(28 12:59:00-28 22:59:00 not in calendar nights) 27 22:59:00, 28 05:59:00, 28 22:59:00"},
		"only in a calendar without a holiday": {func(c *resource.CheckConfig) {
			c.Interval, c.Cron, c.Calendars = 0, "0 12 * * *", &resource.CheckCalendars{RunWithin: []string{"work"}}
		}, "(28 12:00:00-01 12:00:00 not in calendar work (excepted: St Andrew)) 01 12:00:00, 02 12:00:00, 03 12:00:00"},
		"not published": {func(c *resource.CheckConfig) { c.Publish = false }, "publish is false: it runs only when it is asked to"},
		"no schedule":   {func(c *resource.CheckConfig) { c.Interval = 0 }, "neither interval nor cron"},
		"never again": {func(c *resource.CheckConfig) {
			c.Interval, c.Cron = 0, "0 0 30 2 *"
		}, `its cron "0 0 30 2 *" names no time in the next five years`},
	} {
		t.Run(name, func(t *testing.T) {
			check := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "c"}, Interval: 60, Publish: true}
			c.edit(check)
			got := b.Upcoming(check, "", from, 3)
			var parts []string
			for _, p := range got.Pauses {
				parts = append(parts, fmt.Sprintf("(%s-%s %s)", at(p.From), at(p.Until), p.Why))
			}
			var runs []string
			for _, r := range got.Runs {
				text := at(r)
				if check.Interval == 20 {
					text = text[:len(text)-1] // its phase is that of its name
				}
				runs = append(runs, text)
			}
			if len(runs) > 0 {
				parts = append(parts, strings.Join(runs, ", "))
			}
			if got.Problem != "" {
				parts = append(parts, got.Problem)
			}
			if got.Searched > 0 {
				parts = append(parts, "none up to "+at(got.Searched))
			}
			if text := strings.Join(parts, " "); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
	closed := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: "c"}, Interval: 1, Publish: true,
		Subdues: []resource.TimeWindowRepeated{{Begin: "2026-01-01T00:00:00Z", End: "2036-01-01T00:00:00Z"}}}
	if got := b.Upcoming(closed, "", from, 1); len(got.Runs) != 0 || got.Searched < from.AddDate(0, 6, 0).Unix() || len(got.Pauses) != 1 || got.Pauses[0].Until != 0 {
		t.Errorf("subdued for years: %+v", got)
	}
}

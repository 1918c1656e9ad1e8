package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// daily makes a calendar of a time of every day.
func daily(t *testing.T, begin, end string) *calendar.Calendar {
	t.Helper()
	store := testconfig.Store(t)
	def := &resource.Calendar{Metadata: resource.ObjectMeta{Namespace: "default", Name: "c"},
		Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: begin, End: end}}}
	made, err := calendar.New(nil).Draft(store.Snapshot(), def)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestCalendars: a check does not run outside of its calendars, agents learn the pauses, and a calendar that is missing
// never stops a check.
func TestCalendars(t *testing.T) {
	nights, mornings := daily(t, "00:00", "06:00"), daily(t, "04:00", "05:00")
	within := func(names ...string) func(*resource.CheckConfig) {
		return func(c *resource.CheckConfig) {
			c.Calendars = &resource.CheckCalendars{RunWithin: names, NotWithin: []string{"mornings"}}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, nil)
		b.defs.mu.Lock()
		b.defs.calendars = map[string]*calendar.Calendar{"nights": nights}
		b.defs.mu.Unlock()
		b.put(newCheck("haproxy", 3600, within("nights")))
		b.put(newCheck("free", 3600, within("nights", "gone")))
		ran := func(hours time.Duration, check string) (at []int) {
			time.Sleep(time.Until(b.began.Add(hours * time.Hour)))
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, p := range b.got {
				if p.Request.Request.Config.Metadata.Name == check {
					at = append(at, int(p.at/time.Hour))
				}
			}
			return at
		}
		if got := ran(8, "haproxy"); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("it ran in the hours %v, want the night's", got)
		}
		if got := ran(8, "free"); len(got) != 8 {
			t.Errorf("the check with a missing calendar ran in the hours %v, want all", got)
		}
		if log := b.log.String(); strings.Count(log, "the calendar gone is not defined") != 1 {
			t.Errorf("the log is %s", log)
		}
		// A calendar that comes takes effect at once, and agents learn it.
		b.mu.Lock()
		b.assigned = nil
		b.mu.Unlock()
		b.defs.mu.Lock()
		b.defs.calendars["mornings"] = mornings
		b.defs.mu.Unlock()
		b.defs.tell(config.Change{Kind: config.Calendars.String(), Namespace: "default", Name: "mornings"})
		if got := ran(32, "haproxy"); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 24, 25, 26, 27, 29}) {
			t.Errorf("it ran in the hours %v", got)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		var pauses []string
		for _, a := range b.assigned[0] {
			if a.Check == "haproxy" {
				for _, p := range a.Request.Pauses[:3] {
					pauses = append(pauses, fmt.Sprint((p.Begin-b.began.Unix())/3600, "-", (p.End-b.began.Unix())/3600))
				}
			}
		}
		// Told at 8:00, from an hour before.
		if want := []string{"7-24", "28-29", "30-48"}; !slices.Equal(pauses, want) {
			t.Errorf("the pauses are %v, want %v", pauses, want)
		}
		if len(b.assigned) < 2 {
			t.Error("agents did not learn further pauses on the next day")
		}
	})
}

package silence

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestCalendars: a silence acts in its windows and its calendars, from the moment that a calendar is defined, and never by
// one that is missing.
func TestCalendars(t *testing.T) {
	s := testconfig.Store(t)
	noon := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	one := &resource.Silenced{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "*:c"}, Check: "c", Begin: noon.AddDate(0, 0, -10).Unix(),
		Windows: []resource.SilenceWindow{{Cron: "0 20 * * *", Duration: 3600}}, Calendars: []string{"lunch"},
	}
	if err := config.Create(t.Context(), s, config.Silences, one); err != nil {
		t.Fatal(err)
	}
	m := NewMatcher(nil, nil)
	acts := func(at time.Time) bool { return len(m.Match(s.Snapshot(), at, plain("default", "web1", "c"), nil)) > 0 }
	if acts(noon) {
		t.Error("it acts by a calendar that is missing")
	}
	if !acts(noon.Add(8*time.Hour)) || acts(noon.Add(9*time.Hour)) {
		t.Error("its window does not count")
	}
	lunch := &resource.Calendar{Metadata: resource.ObjectMeta{Namespace: "default", Name: "lunch"},
		Windows: []resource.CalendarWindow{{RRule: "FREQ=DAILY", Begin: "12:00", End: "13:00"}}}
	if err := config.Create(t.Context(), s, config.Calendars, lunch); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]bool{-time.Second: false, 0: true, time.Hour - time.Second: true, time.Hour: false, 8 * time.Hour: true, 24 * time.Hour: true} {
		if acts(noon.Add(at)) != want {
			t.Errorf("%s after noon: acts %v", at, !want)
		}
	}
	for _, rule := range m.Rules(s.Snapshot(), "default") {
		spans := rule.Spans(noon, 2)
		if len(spans) != 2 || !spans[0].Ends.Equal(noon.Add(time.Hour)) || !spans[1].Begins.Equal(noon.Add(8*time.Hour)) {
			t.Errorf("the spans are %+v", spans)
		}
	}
	if err := config.Delete(t.Context(), s, config.Calendars, "default", "lunch"); err != nil {
		t.Fatal(err)
	}
	if acts(noon) {
		t.Error("it acts by a calendar that is deleted")
	}
}

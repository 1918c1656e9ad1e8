package filter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/filter"
)

func TestInCalendar(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	e := engine(func(o *filter.Options) {
		o.Now = func() time.Time { return now }
		o.Events = stored{}
		o.InCalendar = func(namespace, name string, at time.Time) (bool, string) {
			if name == "gone" {
				return false, "it counts as missing: the calendar gone is not defined"
			}
			return namespace == "default" && (name == "now" && at.Equal(now) || name == "then" && at.Unix() == 1), ""
		}
	})
	for expression, want := range map[string]bool{
		`in_calendar("now")`: true, `in_calendar("then")`: false, `in_calendar("then", 1)`: true, `in_calendar("now", 1)`: false,
		`in_calendar("gone")`: false, `in_calendar()`: false, `!in_calendar("gone") && in_calendar("now")`: true,
	} {
		if got := e.Passes(definition("allow", expression), incident()); got != want {
			t.Errorf("%s is %v", expression, got)
		}
	}
	for name, want := range map[string]string{
		"now": "true", "then": "false", "gone": "false (it counts as missing: the calendar gone is not defined)",
	} {
		call := fmt.Sprintf("in_calendar(%q)", name)
		answer := e.Ask(t.Context(), definition("allow", call), incident())
		if len(answer.Asked) != 1 || len(answer.Asked[0].Saw) != 1 || answer.Asked[0].Saw[0] != (filter.Value{Name: call, Value: want}) {
			t.Errorf("the trace of %s has %+v", call, answer.Asked)
		}
	}
	if engine(nil).Passes(definition("allow", `in_calendar("now")`), incident()) {
		t.Error("without calendars one is active")
	}
}

package ctl

import (
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

func TestBands(t *testing.T) {
	begin := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	at := func(minutes float64) time.Time { return begin.Add(time.Duration(minutes * float64(time.Minute))) }
	ok, silenced := client.StateChange{State: "passing"}, client.StateChange{State: "failing", Status: 2, Silenced: true}
	change := func(c client.StateChange, minutes float64) client.StateChange {
		c.Time = at(minutes)
		return c
	}
	for _, tc := range []struct {
		name             string
		before           *client.StateChange
		changes          []client.StateChange // newest first
		states, silenced string
	}{
		{"nothing", nil, nil, strings.Repeat("-", 60), ""},
		{"one state", &ok, nil, strings.Repeat("o", 60), ""},
		{"an incident that is silenced", &ok, []client.StateChange{
			change(ok, 14), change(silenced, 12), change(client.StateChange{State: "failing", Status: 1}, 10.5),
		}, strings.Repeat("o", 10) + "wwcc" + strings.Repeat("o", 46), strings.Repeat(" ", 12) + "ss"},
		{"missing, then deleted", nil, []client.StateChange{
			change(client.StateChange{State: "deleted"}, 40), change(client.StateChange{State: "failing", Status: 1, Missing: true}, 30),
			change(client.StateChange{State: "failing", Status: 5}, 20),
		}, strings.Repeat("-", 20) + strings.Repeat("u", 10) + strings.Repeat("m", 10) + strings.Repeat("-", 20), ""},
		{"the clock goes back", &ok, []client.StateChange{change(ok, 29), change(silenced, 30)}, strings.Repeat("o", 60), ""},
	} {
		h := &history{begin: begin, end: at(60), before: tc.before, changes: tc.changes}
		states, silenced := h.bands()
		if string(states) != tc.states || strings.TrimRight(string(silenced), " ") != tc.silenced {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", tc.name, states, silenced, tc.states, tc.silenced)
		}
	}
}

func TestLasted(t *testing.T) {
	for ms, want := range map[int64]string{
		-5: "0s", 0: "0s", 999: "999ms", 59_999: "59s", 61_000: "1m1s", 3_600_000: "1h", 86_340_000: "23h59m", 259_020_000: "2d23h",
		6_804_000_000: "78d18h",
	} {
		if got := millis(ms); got != want {
			t.Errorf("%d ms is %s, want %s", ms, got, want)
		}
	}
}

func TestReportIsShown(t *testing.T) {
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	r := &client.StateReport{Kind: client.StateReportKindAvailability, By: "pair", Since: at, Begin: at, Until: at.Add(time.Hour),
		FirstData: new(at.Add(time.Minute)), Source: "embedded", SourceNote: "PostgreSQL lags by more than 60 s"}
	show := func(zone string) string {
		var out strings.Builder
		if err := (&shownReport{r, placeOf(zone)}).show(&invocation{settings: &settings{}, out: &out}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got, want := show("Europe/Berlin"), "\n0 checks of entities, from 2026-10-01 02:00:00 CEST to 2026-10-01 03:00:00 CEST. The first known state is of "+
		"2026-10-01 02:01:00 CEST\nSource: the backend's own history. PostgreSQL lags by more than 60 s\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q lacks %q", got, want)
	}
	r.Source, r.SourceNote = "postgresql", ""
	if got := show(""); !strings.HasSuffix(got, "\nSource: PostgreSQL\n") {
		t.Errorf("%q", got)
	}
}

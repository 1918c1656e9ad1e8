package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

func TestReplayIsShown(t *testing.T) {
	begin := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	delivered := client.Delivery{Pipeline: "pager", Workflow: "w", Handler: "ops", Verdict: client.VerdictDelivered, Reason: "sent by a replay"}
	r := &replay{
		events: []*client.ReplayedEvent{{
			ID: "2-15-0", Entity: "web1", Check: "disk", Status: 2, Received: begin.UnixMilli(), Deliveries: []client.Delivery{delivered},
		}},
		summary: &client.ReplaySummary{
			Since: begin, Until: begin.Add(time.Hour), Read: 12, Selected: 7, Unreadable: 1, Delivered: 4, Failed: 1, Sent: true, First: &begin,
			Verdicts: map[string]int{"filtered": 2, "delivered": 4, "no_handler": 1},
			Routes:   []client.ReplayRoute{{Pipeline: "pager", Workflow: "w", Handler: "ops", Verdicts: map[string]int{"delivered": 4, "filtered": 2}}},
		},
	}
	show := func() string {
		var out bytes.Buffer
		if err := r.show(&invocation{settings: &settings{}, out: &out}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	got := show()
	for _, want := range []string{
		"7 of 12 events from ", ", the first of ", ": 4 deliveries were sent, 1 failed. 1 events cannot be read.\n",
		"\nEvents: 4 delivered, 2 filtered, 1 no handler\n", " ops ", " 4 delivered, 2 filtered\n",
		"  2-15-0  web1/disk  status 2\n  pipeline pager, workflow w, handler ops: DELIVERED, sent by a replay\n",
		"\n6 more events are not shown. The json format has all.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %q", got, want)
		}
	}
	// Nothing says that something was delivered if nothing was sent.
	r.summary.Sent, r.summary.Unreadable, r.summary.Failed = false, 0, 0
	r.events[0].Deliveries[0].Reason = "nothing was sent: this was a simulation"
	got = show()
	for _, want := range []string{
		": 4 deliveries would be sent. Nothing was sent.\n", "\nEvents: 4 would be sent, 2 filtered, 1 no handler\n", " 4 would be sent, 2 filtered\n",
		"handler ops: WOULD BE SENT, nothing was sent: this was a simulation\n",
	} {
		if !strings.Contains(got, want) || strings.Contains(strings.ToLower(got), "delivered") {
			t.Errorf("%s\nlacks %q", got, want)
		}
	}
	r.events = nil
	if got := show(); strings.Contains(got, "more events") {
		t.Error(got)
	}
	r.summary.Selected, r.summary.First, r.summary.Verdicts, r.summary.Routes = 0, nil, nil, nil
	if got := show(); !strings.Contains(got, "\nNo event matched. ") || strings.Contains(got, "Handler") || strings.Contains(got, "the first of") {
		t.Error(got)
	}
}

func TestReplayProgress(t *testing.T) {
	begin := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	p := &client.ReplayProgress{Since: begin, Until: begin.Add(time.Hour), At: begin, Read: 100, Selected: 5, Delivered: 2}
	if got, want := replayText(p, 10*time.Second), "100 events read (10/s), 5 selected, 2 deliveries"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.At = begin.Add(15 * time.Minute)
	if got, want := replayText(p, 10*time.Second), "100 events read (10/s), 5 selected, 2 deliveries, 25 % of the time, about 30s left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

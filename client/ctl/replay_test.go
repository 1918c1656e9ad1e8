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
			Since: begin, Until: begin.Add(time.Hour), Read: 12, Selected: 7, Unreadable: 1, Delivered: 4, Failed: 1, Sent: true,
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
		"7 of 12 events from ", ": 4 deliveries were sent, 1 failed. 1 events cannot be read.\n",
		"\nEvents: 4 delivered, 2 filtered, 1 no handler\n", " ops ", " 4 delivered, 2 filtered\n",
		"  2-15-0  web1/disk  status 2\n  pipeline pager, workflow w, handler ops: DELIVERED, sent by a replay\n",
		"\n6 more events are not shown. The json format has all.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %q", got, want)
		}
	}
	r.summary.Sent, r.summary.Unreadable, r.summary.Failed, r.events = false, 0, 0, nil
	if got := show(); !strings.Contains(got, ": 4 deliveries would be handed over. Nothing was sent.\n") || strings.Contains(got, "more events") {
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

package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
)

// whyNow is the time of the questions: shortly after three in the morning.
var whyNow = time.Date(2030, 1, 2, 3, 14, 0, 0, time.Local)

// at returns a time of day in Unix milliseconds.
func at(clock string) int64 {
	t, err := time.ParseInLocation(time.TimeOnly, clock, time.Local)
	if err != nil {
		panic(err)
	}
	return time.Date(2030, 1, 2, t.Hour(), t.Minute(), t.Second(), 0, time.Local).UnixMilli()
}

// outcome returns an event with deliveries.
func outcome(clock string, status uint32, deliveries ...client.Delivery) client.Outcome {
	for i := range deliveries {
		deliveries[i].Updated, deliveries[i].Status = at(clock), status
	}
	return client.Outcome{Received: at(clock), Status: status, Incident: status > 0, Resolution: status == 0, Deliveries: deliveries}
}

func denied(filter, expression, name, value string) client.Delivery {
	return client.Delivery{Handler: "mail", Verdict: client.VerdictFiltered,
		Reason: "filter " + filter + " denies it", Steps: []client.Step{
			{Kind: "filter", Name: "is_incident", Verdict: "pass"},
			{Kind: "filter", Name: filter, Expression: expression, Verdict: "deny", Saw: []client.Value{{Name: name, Value: value}}},
		}}
}

// TestTracePage compares a whole page.
func TestTracePage(t *testing.T) {
	early := denied("occurrences", "event.check.occurrences == 3", "event.check.occurrences", "1")
	early.Pipeline, early.Workflow = "alerts", "mail"
	early.Repeats, early.Last = 12, at("03:13:50")
	early.Steps[1].Micros = 12_345
	dead := client.Delivery{Handler: "pager", Verdict: client.VerdictDead, Reason: "3 attempts failed", Attempts: []client.Attempt{
		{At: at("03:10:01"), Millis: 12, Result: "failed", Status: 75, Next: at("03:10:02"), Output: "try again\n"},
		{At: at("03:10:02"), Millis: 5000, Result: "timeout", Error: "killed after 5s", Output: strings.Repeat("line\x1b[31m\n", 10)},
	}, Steps: []client.Step{{Kind: "filter", Name: "broken", Expression: "nope()", Verdict: "error",
		Error: "ReferenceError: nope is not defined"}}}
	resolved := client.Delivery{Handler: "mail", Verdict: client.VerdictNoHandler, Into: "0-1-0/mail"}
	resolved.Handler = ""
	outcomes := []client.Outcome{
		outcome("03:10:00", 2, early, dead), outcome("02:58:00", 0, resolved),
		outcome("02:00:00", 1, client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered}),
	}
	parts := []client.Part{{Text: "web1/disk fails (status 2, last OK " + time.UnixMilli(at("02:58:00")).UTC().Format(time.RFC3339) + "): line?[31m"},
		{Next: &client.Next{Kind: "redrive", Name: "pager"}}, {Text: "; mail: denied."}}
	s := &invocation{settings: &settings{files: &files{}, namespace: "default"}}
	const want = `web1/disk fails (status 2, last OK 02:58:00): line?[31m (to send it again: lapwing deadletter redrive --handler pager --newest --failing-only); mail: denied.

2030-01-02 03:10:00 (4m ago): status 2, an incident
  pipeline alerts, workflow mail, handler mail: FILTERED, filter occurrences denies it
    pass  filter is_incident
    deny  filter occurrences: event.check.occurrences == 3 (12 ms)
            event.check.occurrences = 1
    the same 12 times more, last at 03:13:50
  handler pager: DEAD, 3 attempts failed
    error filter broken: nope()
            ReferenceError: nope is not defined
    attempt 1 at 03:10:01: failed (status 75) after 12 ms, next at 03:10:02
            | try again
    attempt 2 at 03:10:02: timeout after 5000 ms
            killed after 5s
            | line?[31m
            | line?[31m
            | line?[31m
            | line?[31m
            | line?[31m
            | line?[31m
            | line?[31m
            | line?[31m
            …

2030-01-02 02:58:00 (16m ago): status 0, a resolution
  no handler: NO HANDLER
    went out as 0-1-0/mail

1 older trace is not shown; see --limit.
`
	var out bytes.Buffer
	(&tracePrinter{answer: s.worded(parts, whyNow), now: whyNow, outcomes: outcomes, w: &out}).write(2)
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestTraceShowsWhatWaits: an older event is shown beyond the limit as long as one of its deliveries waits.
func TestTraceShowsWhatWaits(t *testing.T) {
	delivered := client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered}
	outcomes := []client.Outcome{
		outcome("03:12:00", 0, delivered), outcome("03:11:00", 2, delivered), outcome("03:10:00", 2, client.Delivery{
			ID: "1/page", Handler: "page", Verdict: client.VerdictHeld, Reason: "step 1 of 1 notified alice by mail",
			Steps: []client.Step{{Kind: "escalate", Name: "step 1", Verdict: "pass", At: at("03:10:02")}},
		}),
	}
	var out bytes.Buffer
	(&tracePrinter{now: whyNow, outcomes: outcomes, notes: map[string]client.Note{"1/page": {Open: true}}, w: &out}).write(1)
	if got := out.String(); !strings.HasSuffix(got, `
2030-01-02 03:10:00 (4m ago): status 2, an incident; shown beyond --limit because a delivery of it still waits
  handler page: HELD, step 1 of 1 notified alice by mail
    pass  escalate step 1 at 03:10:02

1 older trace is not shown; see --limit.
`) {
		t.Errorf("got:\n%s", got)
	}
}

// TestLocalTimes: the UTC times in reasons of the server are shown like the others, and nothing else changes.
func TestLocalTimes(t *testing.T) {
	clock := func(millis int64) string {
		return time.UnixMilli(millis).In(time.FixedZone("CET", 3600)).Format(time.TimeOnly)
	}
	for text, want := range map[string]string{
		"step 2 follows at 2026-11-27T21:27:14Z unless": "step 2 follows at 22:27:14 unless",
		"until 2026-11-27T21:27:14.5Z: calendar night":  "until 22:27:14: calendar night",
		"2026-11-27T21:27:14Z and 2026-11-27T00:00:00Z": "22:27:14 and 01:00:00",
		"2026-13-27T21:27:14Z is no time":               "2026-13-27T21:27:14Z is no time",
		"2026-11-27T21:27:14+01:00 has a zone":          "2026-11-27T21:27:14+01:00 has a zone",
		"12026-11-27T21:27:14Z":                         "12026-11-27T21:27:14Z",
		"":                                              "",
	} {
		if got := localTimes(text, clock); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

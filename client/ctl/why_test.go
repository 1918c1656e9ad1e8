package ctl

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// whyNow is the time of the questions: shortly after three in the morning.
var whyNow = time.Date(2030, 1, 2, 3, 14, 0, 0, time.Local)

func plainCommand(words ...string) string { return "lapwing " + strings.Join(words, " ") }

// at returns a time of day in Unix milliseconds.
func at(clock string) int64 {
	t, err := time.ParseInLocation(time.TimeOnly, clock, time.Local)
	if err != nil {
		panic(err)
	}
	return time.Date(2030, 1, 2, t.Hour(), t.Minute(), t.Second(), 0, time.Local).UnixMilli()
}

func present(t *testing.T, status, occurrences int) *event {
	t.Helper()
	ev := new(event)
	raw := map[string]any{"entity": map[string]any{"metadata": map[string]any{"name": "web1"}}, "check": map[string]any{
		"metadata": map[string]any{"name": "disk"}, "status": status, "occurrences": occurrences, "last_ok": at("02:58:00") / 1000}}
	data, _ := json.Marshal(raw)
	if err := json.Unmarshal(data, ev); err != nil {
		t.Fatal(err)
	}
	return ev
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

func TestWhy(t *testing.T) {
	delivered := client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered,
		Attempts: []client.Attempt{{At: at("03:10:01"), Result: "ok"}}}
	early := denied("occurrences", "event.check.occurrences == 3", "event.check.occurrences", "1")
	waiting := client.Delivery{Handler: "pager", Verdict: client.VerdictWaiting, Attempts: []client.Attempt{
		{At: at("03:10:01"), Result: "timeout", Error: "no answer in 5s", Next: at("03:14:30")}}}
	step := client.Step{Kind: "escalate", Name: "step 1", Verdict: "pass", At: at("03:10:02")}
	escalating := client.Delivery{ID: "1/page", Handler: "page", Verdict: client.VerdictHeld, Reason: "step 1 of 2 notified alice by mail",
		Steps: []client.Step{step, {Kind: "escalate", Name: "step 2", Verdict: "pass", At: at("03:11:02")}}}
	escalated := client.Delivery{ID: "1/page", Handler: "page", Verdict: client.VerdictDelivered, Reason: "after 1 steps: resolved; told alice",
		Steps: []client.Step{step}}
	step.Reached = at("03:12:30")
	late := client.Delivery{ID: "1/page", Handler: "page", Verdict: client.VerdictDelivered, Steps: []client.Step{step,
		{Kind: "escalate", Name: "step 2", Verdict: "pass", At: at("03:11:02"), Reached: at("03:12:20")}}}
	deleted := escalating
	deleted.Verdict, deleted.Reason = client.VerdictDropped, "the handler was deleted"
	folded := client.Delivery{ID: "2/page", Handler: "page", Verdict: client.VerdictFolded, Into: "1/page",
		Reason: "the escalation that began before goes on"}
	const failing = "web1/disk fails (status 2, 3 times in a row, last OK 02:58:00). "
	for name, tc := range map[string]struct {
		status    int
		gone      bool
		outcomes  []client.Outcome
		simulated []client.Delivery
		why, want string
		moment    string // if set, the answer is of this time of day
	}{
		"delivered": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2, delivered)},
			want: failing + "It did alert: mail at 03:10:01."},
		"delivered, then denied": {status: 2, outcomes: []client.Outcome{outcome("03:12:00", 2, early), outcome("03:10:00", 2, delivered)},
			want: failing + "It did alert: mail at 03:10:01. A later result did not: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"delivered, then silenced": {status: 2, outcomes: []client.Outcome{outcome("03:12:00", 2,
			client.Delivery{Verdict: client.VerdictSilenced, Reason: "it is silenced by rack-r1; no handler in its namespace takes silenced events"}),
			outcome("03:10:00", 2, delivered)},
			want: failing + "It did alert: mail at 03:10:01. A later result did not: it is silenced by rack-r1; no handler in its namespace takes silenced events."},
		"delivered in an earlier incident": {status: 2,
			outcomes: []client.Outcome{outcome("03:12:00", 2, early), outcome("03:11:00", 0, delivered),
				outcome("03:10:00", 2, delivered)},
			want: failing + "It did not alert: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"filtered by hours": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictFiltered,
				Reason: "filter office denies it: it is outside its hours",
				Steps:  []client.Step{{Kind: "filter", Name: "office", Verdict: "deny"}}})},
			want: failing + "It did not alert: mail: filter office denies it: it is outside its hours."},
		"silenced": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictSilenced,
				Reason: "it is silenced by entity:web1:*"})},
			want: failing + "It did not alert: mail: it is silenced by entity:web1:*."},
		"inhibited": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictInhibited,
				Reason: "it depends on router/ping, which fails"})},
			want: failing + "It did not alert: mail: it is inhibited: it depends on router/ping, which fails."},
		"no handler": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Verdict: client.VerdictNoHandler, Updated: at("03:10:00"), Reason: "handler mial was not defined"})},
			want: failing + "It did not alert: no handler took it: handler mial was not defined."},
		"dead": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictDead, Attempts: []client.Attempt{
				{At: at("03:10:01"), Result: "failed", Status: 75},
				{At: at("03:10:11"), Result: "failed", Status: 1, Output: "\n  550 no such user\nsecond line\n"}}})},
			want: failing + "It did not alert: mail: the handler failed in 2 attempts: failed (status 1): 550 no such user (to send it again: lapwing deadletter redrive --handler mail --newest --failing-only)."},
		"waiting": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictWaiting, Attempts: []client.Attempt{
				{At: at("03:10:01"), Result: "timeout", Error: "no answer in 5s", Next: at("03:14:30")}}})},
			want: failing + "It has not alerted yet: mail: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"folded": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictFolded, Reason: "rack-17: 412 keepalives",
				Attempts: []client.Attempt{{At: at("03:10:30")}}})},
			want: failing + "It did not alert on its own: mail: it went out at 03:10:30 with others in one alert: rack-17: 412 keepalives."},
		"by one and not by another": {status: 2, outcomes: []client.Outcome{outcome("03:12:00", 2, early),
			outcome("03:10:00", 2, delivered, client.Delivery{Handler: "pager", Verdict: client.VerdictDead,
				Reason: "status 1"})},
			want: failing + "It did alert: mail at 03:10:01. It did not alert by other routes: pager: the handler failed: " +
				"status 1 (to send it again: lapwing deadletter redrive --handler pager --newest --failing-only). " +
				"A later result did not: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"defined since": {status: 2, outcomes: []client.Outcome{outcome("03:12:00", 2, early),
			outcome("03:10:00", 2, client.Delivery{Verdict: client.VerdictNoHandler})},
			want: failing + "It did not alert: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"grouped": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "mail", Verdict: client.VerdictGrouped, Reason: "rack-17"})},
			want: failing + "It has not alerted yet: mail: it waits for its group to go out: rack-17."},
		"broken": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Pipeline: "alerts", Workflow: "mail", Verdict: client.VerdictFailed,
				Reason: "there is no filter \"x\""})},
			want: failing + "It did not alert: alerts/mail: the workflow could not be run: there is no filter \"x\"."},
		"many": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "a", Verdict: client.VerdictSilenced},
			client.Delivery{Handler: "b", Verdict: client.VerdictSilenced},
			client.Delivery{Handler: "c", Verdict: client.VerdictSilenced},
			client.Delivery{Handler: "d", Verdict: client.VerdictSilenced},
			client.Delivery{Handler: "e", Verdict: client.VerdictSilenced},
			client.Delivery{Handler: "f", Verdict: client.VerdictDropped})},
			want: failing + "It did not alert: f: it was dropped; a, b, c, d, e: it is silenced."},
		"untraced": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 1, delivered)}, simulated: []client.Delivery{early},
			want: failing + "There is no trace of this. With the present definitions it would not alert: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"untraced and fine": {status: 2, simulated: []client.Delivery{{Handler: "mail",
			Verdict: client.VerdictDelivered}}, want: failing +
			"There is no trace of this. With the present definitions it would alert: mail."},
		"untraced and not tried": {status: 2, why: "access denied", want: failing + "There is no trace of this: access denied."},
		"passing":                {status: 0, want: "web1/disk passes (status 0), so there is nothing to alert about."},
		"passing after an incident": {status: 0, outcomes: []client.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:11:00", 2, early), outcome("03:10:00", 2, delivered)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. The incident before it did alert: mail at 03:10:01."},
		"passing while an attempt is due": {status: 0, outcomes: []client.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:10:00", 2, delivered, waiting)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it did alert: mail at 03:10:01. Still open: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"passing before any attempt succeeded": {status: 0, outcomes: []client.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:10:00", 2, waiting)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it has not alerted yet: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"passing while an earlier incident waits": {status: 0, outcomes: []client.Outcome{outcome("03:13:00", 0, delivered),
			outcome("03:12:00", 2, delivered), outcome("03:11:00", 0, delivered), outcome("03:10:00", 2, waiting)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:13:00: mail: delivered. " +
				"The incident before it did alert: mail at 03:10:01. " +
				"Still open of other events: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"failing while an earlier incident waits": {status: 2, outcomes: []client.Outcome{outcome("03:12:00", 2, delivered),
			outcome("03:11:00", 0, delivered), outcome("03:10:00", 2, waiting)},
			want: failing + "It did alert: mail at 03:10:01. " +
				"Still open of other events: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"escalating": {status: 2, outcomes: []client.Outcome{outcome("03:12:00", 2, folded), outcome("03:10:00", 2, escalating)},
			want: failing + "It did alert: page at 03:10:02. Its escalation goes on: page: step 1 of 2 notified alice by mail."},
		"the escalation's handler was deleted": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2, deleted)},
			want: failing + "It did alert: page at 03:10:02. Its escalation is over: page: it was dropped: the handler was deleted."},
		"silenced by very many": {status: 2, outcomes: []client.Outcome{outcome("03:10:00", 2, client.Delivery{
			ID: "1/mail", Handler: "mail", Verdict: client.VerdictSilenced, Steps: []client.Step{{Name: notSilenced, Verdict: "deny",
				Saw: []client.Value{{Name: "event.check.silenced", Value: "[a:*, b:* and 3 more]"}}}}})},
			want: failing + "It did not alert: mail: it is silenced by a:*, and silenced by b:*, and by 3 more."},
		"reached long after the step": {status: 0, outcomes: []client.Outcome{outcome("03:10:00", 2, late)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. The incident before it did alert: page at 03:12:20."},
		"before anyone was reached": {moment: "03:11:30", outcomes: []client.Outcome{outcome("03:10:00", 2, late)},
			want: "At 03:11:30 web1/disk failed (status 2, failing since 03:10:00). It had not alerted by then; it did later: page at 03:12:20."},
		"after someone was reached": {moment: "03:12:30", outcomes: []client.Outcome{outcome("03:10:00", 2, late)},
			want: "At 03:12:30 web1/disk failed (status 2, failing since 03:10:00). It did alert: page at 03:12:20."},
		"escalating behind an acknowledgement": {status: 2, outcomes: []client.Outcome{outcome("03:13:00", 2, folded),
			outcome("03:12:00", 2, client.Delivery{ID: "3/page", Handler: "page", Verdict: client.VerdictSilenced, Reason: "silenced"}),
			outcome("03:10:00", 2, escalating)},
			want: failing + "It did alert: page at 03:10:02. Its escalation goes on: page: step 1 of 2 notified alice by mail."},
		"resolved in a quiet time": {status: 0, outcomes: []client.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:11:00", 1, folded), outcome("03:10:00", 1, client.Delivery{ID: "1/page", Handler: "page",
				Verdict: client.VerdictFiltered, Reason: "resolved before anyone was notified; it waited: calendar nights"})},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it did not alert: page: resolved before anyone was notified; it waited: calendar nights."},
		"passing while it escalates": {status: 0, outcomes: []client.Outcome{outcome("03:12:00", 0, delivered), outcome("03:10:00", 2, escalating)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it did alert: page at 03:10:02. Still open: page: it is held: step 1 of 2 notified alice by mail."},
		"escalated and resolved": {status: 0, outcomes: []client.Outcome{outcome("03:13:00", 0,
			client.Delivery{Handler: "page", Verdict: client.VerdictDelivered}), outcome("03:10:00", 2, escalated)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:13:00: page: delivered. " +
				"The incident before it did alert: page at 03:10:02."},
		"untraced and escalating": {status: 2, simulated: []client.Delivery{{Handler: "page", Verdict: client.VerdictHeld,
			Reason: "it begins an escalation, and step 1 notifies bob by mail now"}}, want: failing +
			"There is no trace of this. With the present definitions it would alert: page: it begins an escalation, and step 1 notifies bob by mail now."},
		"gone": {gone: true, outcomes: []client.Outcome{outcome("03:10:00", 2, early)},
			want: "There is no event web1/disk now. Its last incident did not alert: mail: filter occurrences denied it: " +
				"event.check.occurrences == 3, and event.check.occurrences was 1."},
		"unknown": {gone: true, want: "There is no event web1/disk and no trace of one."},
	} {
		a := &account{entity: "web1", check: "disk", command: plainCommand, now: whyNow, outcomes: tc.outcomes, simulated: tc.simulated, why: tc.why}
		switch {
		case tc.moment != "":
			a.at = time.UnixMilli(at(tc.moment))
		case !tc.gone:
			a.event = present(t, tc.status, 3)
		}
		if got := a.sentence(); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestNextOfUntraced: a failing event without a trace may have a delivery that waits on disk.
func TestNextOfUntraced(t *testing.T) {
	delivered := client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered}
	waits := client.Delivery{Handler: "mail", Verdict: client.VerdictWaiting}
	const whether, what = "see whether it waits for the handler", "see what waits for the handler"
	for name, tc := range map[string]struct {
		outcomes  []client.Outcome
		simulated []client.Delivery
		want      string
	}{
		"no trace":             {nil, []client.Delivery{delivered}, whether},
		"no trace, no handler": {nil, []client.Delivery{{Verdict: client.VerdictNoHandler}}, ""},
		"a trace":              {[]client.Outcome{outcome("03:10:00", 2, delivered)}, nil, ""},
		"it waits":             {[]client.Outcome{outcome("03:10:00", 2, waits)}, nil, what},
	} {
		a := &account{entity: "web1", check: "disk", event: present(t, 2, 1), now: whyNow, outcomes: tc.outcomes, simulated: tc.simulated}
		steps := a.next(&invocation{settings: &settings{files: &files{}, namespace: "default"}})
		i := slices.IndexFunc(steps, func(s nextStep) bool { return strings.HasSuffix(s.line, " handler waiting mail") })
		if i >= 0 != (tc.want != "") || i >= 0 && steps[i].what != tc.want {
			t.Errorf("%s: %v", name, steps)
		}
	}
}

// TestWhyBeforeRepeats: the answer says of each handler what became of the incident's own alert before it says what became
// of later results, however many traces are shown.
func TestWhyBeforeRepeats(t *testing.T) {
	one := func(handler string, verdict client.Verdict, attempts ...client.Attempt) client.Delivery {
		return client.Delivery{ID: "1/" + handler, Handler: handler, Verdict: verdict, Attempts: attempts}
	}
	tired := func(handler string) client.Delivery {
		return client.Delivery{ID: "2/" + handler, Handler: handler, Verdict: client.VerdictFiltered,
			Reason: "filter fatigue_check denies it", Steps: []client.Step{{Kind: "filter", Name: "fatigue_check", Verdict: "deny"}}}
	}
	failed := client.Attempt{At: at("03:10:01"), Result: "error", Error: "connection refused"}
	retried := failed
	retried.Next = at("03:14:30")
	dead := func(handler string) client.Delivery { return one(handler, client.VerdictDead, failed) }
	waiting := func(handler string) client.Delivery { return one(handler, client.VerdictWaiting, retried) }
	because := func(d client.Delivery, reason string) client.Delivery { d.Reason = reason; return d }
	const (
		deadText = "the handler failed in 1 attempt: connection refused (to send it again: lapwing deadletter redrive --handler "
		waits    = "the last attempt failed: connection refused, the next is at 03:14:30"
		denies   = "filter fatigue_check denies it"
		onDisk   = "it waits on disk"
	)
	behind := one("hook", client.VerdictWaiting)
	behind.ID, behind.Reason = "2/hook", "it waits behind an earlier delivery of the check"
	silenced := because(one("hook", client.VerdictSilenced), "it is silenced by quiet")
	repeated := silenced
	repeated.Repeats, repeated.Last = 3, at("03:12:30")
	office := client.Delivery{Handler: "hook", Verdict: client.VerdictFiltered, Reason: "filter office denies it: it is outside its hours",
		Steps: []client.Step{{Kind: "filter", Name: "office", Verdict: "deny"}}}
	hook := tired("hook")
	for name, tc := range map[string]struct {
		first []client.Delivery
		then  [][]client.Delivery // oldest first; the default is one result that fatigue_check denies
		want  string
	}{
		"dead": {first: []client.Delivery{dead("hook")},
			want: "It did not alert: hook: " + deadText + "hook --newest --failing-only). Its newest result: hook: " + denies + "."},
		"waiting": {first: []client.Delivery{waiting("hook")},
			want: "It has not alerted yet: hook: " + waits + ". Its newest result: hook: " + denies + "."},
		"shed": {first: []client.Delivery{because(one("hook", client.VerdictDropped), "too many deliveries of the handler were on disk")},
			want: "It did not alert: hook: it was dropped: too many deliveries of the handler were on disk. Its newest result: hook: " +
				denies + "."},
		"the first waits, the next is shed": {first: []client.Delivery{because(one("hook", client.VerdictWaiting), onDisk)},
			then: [][]client.Delivery{{because(one("hook", client.VerdictDropped), "too many deliveries of the handler were on disk")}},
			want: "It has not alerted yet: hook: it waits on disk. " +
				"Its newest result: hook: it was dropped: too many deliveries of the handler were on disk."},
		"the first waits, and the next behind it": {first: []client.Delivery{because(one("hook", client.VerdictWaiting), onDisk)},
			then: [][]client.Delivery{{behind}}, want: "It has not alerted yet: hook: it waits on disk."},
		"not run": {first: []client.Delivery{because(one("hook", client.VerdictFailed), `there is no filter "x"`)},
			want: `It did not alert: hook: the workflow could not be run: there is no filter "x". Its newest result: hook: ` + denies + "."},
		"delivered": {first: []client.Delivery{one("hook", client.VerdictDelivered, client.Attempt{At: at("03:10:01"), Result: "ok"})},
			want: "It did alert: hook at 03:10:01. A later result did not: hook: " + denies + "."},
		"in a group": {first: []client.Delivery{because(one("hook", client.VerdictGrouped), "rack-17")},
			want: "It has not alerted yet: hook: it waits for its group to go out: rack-17. Its newest result: hook: " + denies + "."},
		"with others": {first: []client.Delivery{because(one("hook", client.VerdictFolded, failed), "rack-17: 4 keepalives")},
			want: "It did not alert on its own: hook: it went out at 03:10:01 with others in one alert: rack-17: 4 keepalives. " +
				"Its newest result: hook: " + denies + "."},
		"held": {first: []client.Delivery{because(one("hook", client.VerdictHeld), "calendar nights")},
			want: "It has not alerted yet: hook: it is held: calendar nights. Its newest result: hook: " + denies + "."},
		"silenced": {first: []client.Delivery{silenced},
			want: "It did not alert: hook: it was silenced by quiet. Its newest result: hook: " + denies + "."},
		"inhibited": {first: []client.Delivery{because(one("hook", client.VerdictInhibited), "it depends on router/ping")},
			want: "It did not alert: hook: it was inhibited: it depends on router/ping. Its newest result: hook: " + denies + "."},
		"denied by another filter": {first: []client.Delivery{office},
			want: "It did not alert: hook: filter office denies it: it is outside its hours. Its newest result: hook: " + denies + "."},
		"denied, silenced, denied": {first: []client.Delivery{hook}, then: [][]client.Delivery{{silenced}, {hook}},
			want: "It did not alert: hook: it was silenced by quiet. Its newest result: hook: " + denies + "."},
		"dead, and again": {first: []client.Delivery{dead("hook")}, then: [][]client.Delivery{{hook}, {dead("hook")}},
			want: "It did not alert: hook: " + deadText + "hook --newest --failing-only)."},
		"dead, delivered, denied": {first: []client.Delivery{dead("hook")},
			then: [][]client.Delivery{{one("hook", client.VerdictDelivered, client.Attempt{At: at("03:11:01"), Result: "ok"})}, {hook}},
			want: "It did alert: hook at 03:11:01. A later result did not: hook: " + denies + "."},
		"delivered, dead, denied": {first: []client.Delivery{one("hook", client.VerdictDelivered, client.Attempt{At: at("03:10:01"), Result: "ok"})},
			then: [][]client.Delivery{{dead("hook")}, {hook}},
			want: "It did alert: hook at 03:10:01. A later result did not: hook: " + deadText + "hook --newest --failing-only)."},
		"another waits behind it": {first: []client.Delivery{waiting("hook")}, then: [][]client.Delivery{{behind}},
			want: "It has not alerted yet: hook: " + waits + "."},
		"the handlers differ": {first: []client.Delivery{dead("curl"), waiting("hook"), dead("short")},
			then: [][]client.Delivery{{tired("curl"), tired("hook"), tired("short")}},
			want: "It has not alerted yet: hook: " + waits + "; curl: " + deadText + "curl --newest --failing-only); short: " + deadText + "short --newest --failing-only). " +
				"Its newest result: curl, hook, short: " + denies + "."},
		"one delivered": {first: []client.Delivery{dead("curl"), one("mail", client.VerdictDelivered, client.Attempt{At: at("03:10:02"), Result: "ok"})},
			then: [][]client.Delivery{{tired("curl"), tired("mail")}},
			want: "It did alert: mail at 03:10:02. It did not alert by other routes: curl: " + deadText + "curl --newest --failing-only). " +
				"A later result did not: mail: " + denies + ". Its newest result: curl: " + denies + "."},
		"repeats": {first: []client.Delivery{repeated, dead("curl")}, then: [][]client.Delivery{{tired("curl")}},
			want: "It did not alert: curl: " + deadText + "curl --newest --failing-only); hook: it is silenced by quiet. Its newest result: curl: " + denies + "."},
	} {
		a := &account{entity: "web1", check: "disk", command: plainCommand, now: whyNow, event: present(t, 2, 3)}
		a.outcomes = []client.Outcome{outcome("03:10:00", 2, tc.first...)}
		if tc.then == nil {
			tc.then = [][]client.Delivery{{hook}}
		}
		for i, then := range tc.then {
			a.outcomes = append([]client.Outcome{outcome([]string{"03:11:00", "03:12:00"}[i], 2, then...)}, a.outcomes...)
		}
		_, got, _ := strings.Cut(a.sentence(), "). ")
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
		for limit := range 3 {
			var out bytes.Buffer
			(&tracePrinter{account: a, w: &out}).write(limit)
			if line, _, _ := strings.Cut(out.String(), "\n"); !strings.HasSuffix(line, tc.want) {
				t.Errorf("%s, with --limit %d: got %s", name, limit, line)
			}
		}
		// It passes by now: of the incident before, the same holds.
		a.event = present(t, 0, 1)
		a.outcomes = append([]client.Outcome{outcome("03:13:00", 0)}, a.outcomes...)
		_, past, _ := strings.Cut(a.sentence(), "The incident before it")
		now, _, _ := strings.Cut(strings.TrimPrefix(tc.want, "It"), ". ")
		now = strings.TrimSuffix(strings.Replace(now, "on its own: ", ": ", 1), ".")
		now = strings.ReplaceAll(strings.Replace(now, "alert : ", "alert: ", 1), "it is silenced", "it was silenced")
		if !strings.HasPrefix(past, now) {
			t.Errorf("%s, before it passes:\n got %s\nwant %s", name, past, now)
		}
	}
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
	a := &account{entity: "web1", check: "disk", command: plainCommand, event: present(t, 2, 3), now: whyNow, outcomes: []client.Outcome{
		outcome("03:10:00", 2, early, dead), outcome("02:58:00", 0, resolved),
		outcome("02:00:00", 1, client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered}),
	}}
	const want = `web1/disk fails (status 2, 3 times in a row, last OK 02:58:00). It did not alert: pager: the handler failed in 2 attempts: killed after 5s: line?[31m (to send it again: lapwing deadletter redrive --handler pager --newest --failing-only); mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1.

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
	(&tracePrinter{account: a, w: &out}).write(2)
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestTraceShowsWhatWaits: an older event is shown beyond the limit as long as one of its deliveries waits.
func TestTraceShowsWhatWaits(t *testing.T) {
	delivered := client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered}
	a := &account{entity: "web1", check: "disk", event: present(t, 0, 1), now: whyNow, outcomes: []client.Outcome{
		outcome("03:12:00", 0, delivered), outcome("03:11:00", 2, delivered), outcome("03:10:00", 2, client.Delivery{
			Handler: "page", Verdict: client.VerdictHeld, Reason: "step 1 of 1 notified alice by mail",
			Steps: []client.Step{{Kind: "escalate", Name: "step 1", Verdict: "pass", At: at("03:10:02")}},
		}),
	}}
	var out bytes.Buffer
	(&tracePrinter{account: a, w: &out}).write(1)
	if got := out.String(); !strings.HasSuffix(got, `
2030-01-02 03:10:00 (4m ago): status 2, an incident; shown beyond --limit because a delivery of it still waits
  handler page: HELD, step 1 of 1 notified alice by mail
    pass  escalate step 1 at 03:10:02

1 older trace is not shown; see --limit.
`) {
		t.Errorf("got:\n%s", got)
	}
}

// TestWould has the first line of a simulation.
func TestWould(t *testing.T) {
	mail := client.Delivery{Handler: "mail", Verdict: client.VerdictDelivered}
	page := client.Delivery{Handler: "page", Verdict: client.VerdictHeld, Reason: "it begins an escalation, and step 1 notifies bob by mail now"}
	for _, tc := range []struct {
		deliveries []client.Delivery
		want       string
	}{
		{[]client.Delivery{mail}, "It would be sent to mail."},
		{[]client.Delivery{page}, "It would be held by page: it begins an escalation, and step 1 notifies bob by mail now."},
		{[]client.Delivery{page, mail}, "It would be sent to mail. It would be held by page: it begins an escalation, and step 1 notifies bob by mail now."},
		{[]client.Delivery{{Handler: "page", Verdict: client.VerdictHeld, Reason: "it begins an escalation, and step 1 finds no one to notify now",
			Steps: []client.Step{{Kind: "escalate", Name: "step 1", Verdict: "error"}}}},
			"No handler would get it: page: it is held: it begins an escalation, and step 1 finds no one to notify now."},
		{[]client.Delivery{{Handler: "mail", Verdict: client.VerdictFiltered, Reason: "closed"}}, "No handler would get it: mail: closed."},
	} {
		if got := new(account).would(tc.deliveries); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestEscalationNow: the answer has where an escalation is now, and not what its last look said.
func TestEscalationNow(t *testing.T) {
	const step = "step 1 of 2 notified alice by mail; step 2 follows at 2030-01-02T03:20:00Z unless it is acknowledged"
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("CET", 3600)
	now := time.Date(2030, 1, 2, 4, 14, 0, 0, time.Local)
	tries := []resource.EscalationTry{{Contact: "bob", Handler: "mail", Attempts: 3, Error: "connection refused", Next: now.Add(time.Minute).UnixMilli()}}
	const next = "goes on: page: step 1 of 2 notified alice by mail; step 2 follows at 04:20:00 unless it is acknowledged"
	for name, tc := range map[string]struct {
		reason, held, want string
		tries              []resource.EscalationTry
		now                string
	}{
		"goes on":                {step, "", next + ".", nil, ""},
		"acknowledged since":     {step, "acknowledged by admin: looking", "waits: page: acknowledged by admin: looking.", nil, "acknowledged by"},
		"acknowledged no longer": {"acknowledged by admin: looking", "", "goes on: page: the next step follows at 04:20:00 unless it is acknowledged.", nil, "the next step"},
		"tried again": {step, "", next + "; under way to bob by mail: 3 attempts failed, the last: connection refused; next 04:15:00.", tries,
			"under way to bob by mail: 3 attempts failed, the last: connection refused; next 04:15:00\n"},
	} {
		a := &account{entity: "web1", check: "disk", command: plainCommand, now: now, event: present(t, 2, 3), outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "page", Verdict: client.VerdictHeld, Reason: tc.reason,
				Steps: []client.Step{{Kind: "escalate", Name: "step 1", Verdict: "pass", At: at("03:10:02")}}})},
			escalations: []resource.Escalation{{Handler: "page", Held: tc.held, Next: now.Add(6 * time.Minute).UnixMilli(), Tries: tc.tries}}}
		if got := a.sentence(); !strings.HasSuffix(got, " Its escalation "+tc.want) {
			t.Errorf("%s: got %s", name, got)
		}
		var out bytes.Buffer
		(&tracePrinter{account: a, w: &out}).write(1)
		if _, line, _ := strings.Cut(out.String(), "    now: "); !strings.HasPrefix(line, tc.now) || tc.now == "" && line != "" {
			t.Errorf("%s: the line of the present is %q, want %q:\n%s", name, line, tc.now, out.String())
		}
	}
}

// TestTryTextIsShort: a long error does not push the time of the next attempt out of sight.
func TestTryTextIsShort(t *testing.T) {
	try := resource.EscalationTry{Contact: "anna", Handler: "mail", Attempts: 1, Error: strings.Repeat("é", 100)}
	if got, want := tryText(&try, whyNow), " by mail: 1 attempt failed: "+try.Error+"; the next is due"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	whole := tryText(&try, whyNow)
	try.Error += "é\nsecond line"
	if got, want := tryText(&try, whyNow), strings.Replace(whole, ";", "…;", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEscalationBegunEarlier: the traces that are fetched may all be of later results, and the escalation is older than they.
func TestEscalationBegunEarlier(t *testing.T) {
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.UTC
	now := time.Date(2030, 1, 2, 3, 14, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		e    resource.Escalation
		want string
	}{
		"gave up": {resource.Escalation{Steps: 18, Notified: []string{"alice", "bob"}}, " It did alert: page, which reached alice, bob. " +
			"Its escalation is over: page: it began at 02:10:00; all its 18 steps are taken, and nothing more follows."},
		"goes on": {resource.Escalation{Steps: 2, Notified: []string{"alice"}, Next: at("03:20:00")}, " It did alert: page, which reached alice. " +
			"Its escalation goes on: page: it began at 02:10:00; step 3 is due at 03:20:00."},
		"held": {resource.Escalation{Steps: 2, Notified: []string{"alice"}, Held: "acknowledged by bob"}, " It did alert: page, which reached alice. " +
			"Its escalation waits: page: it began at 02:10:00; acknowledged by bob."},
		"no one": {resource.Escalation{Steps: 2}, " It did not alert. " +
			"Its escalation has reached no one: page: it began at 02:10:00; all its 2 steps are taken, and nothing more follows."},
	} {
		tc.e.Handler, tc.e.Began = "page", at("02:10:00")
		a := &account{entity: "web1", check: "disk", command: plainCommand, now: now, event: present(t, 2, 300), outcomes: []client.Outcome{outcome("03:10:00", 2,
			client.Delivery{Handler: "page", Verdict: client.VerdictFolded, Into: "0-1-1/page", Reason: "the escalation that began before goes on"})},
			escalations: []resource.Escalation{tc.e}}
		if got := a.sentence(); !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
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

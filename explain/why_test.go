package explain

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
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

func present(status uint32, occurrences int64) *resource.Event {
	return &resource.Event{Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: "web1"}}, Check: &resource.Check{
		Metadata: resource.ObjectMeta{Name: "disk"}, Status: status, Occurrences: occurrences, LastOK: at("02:58:00") / 1000}}
}

var utcTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// spoken returns a text as the command line shows it: with times of the day, and with the command to send dead letters again.
func spoken(text string) string {
	var b strings.Builder
	for _, one := range parts(text) {
		if one.Next != nil {
			one.Text = " (to send it again: lapwing deadletter redrive --handler " + one.Next.Name + " --newest --failing-only)"
		}
		b.WriteString(one.Text)
	}
	return utcTime.ReplaceAllStringFunc(b.String(), func(one string) string {
		moment, err := time.Parse(time.RFC3339, one)
		if err != nil {
			return one
		}
		return moment.Local().Format(time.TimeOnly)
	})
}

// outcome returns an event with deliveries.
func outcome(clock string, status uint32, deliveries ...trace.Delivery) trace.Outcome {
	for i := range deliveries {
		deliveries[i].Updated, deliveries[i].Status = at(clock), status
	}
	return trace.Outcome{Received: at(clock), Status: status, Incident: status > 0, Resolution: status == 0, Deliveries: deliveries}
}

func denied(filter, expression, name, value string) trace.Delivery {
	return trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Filtered,
		Reason: "filter " + filter + " denies it", Steps: []trace.Step{
			{Kind: "filter", Name: "is_incident", Verdict: "pass"},
			{Kind: "filter", Name: filter, Expression: expression, Verdict: "deny", Saw: []trace.Value{{Name: name, Value: value}}},
		}}
}

func TestWhy(t *testing.T) {
	delivered := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered,
		Attempts: []trace.Attempt{{At: at("03:10:01"), Result: "ok"}}}
	early := denied("occurrences", "event.check.occurrences == 3", "event.check.occurrences", "1")
	waiting := trace.Delivery{Header: delivery.Header{Handler: "pager"}, Verdict: trace.Waiting, Attempts: []trace.Attempt{
		{At: at("03:10:01"), Result: "timeout", Error: "no answer in 5s", Next: at("03:14:30")}}}
	step := trace.Step{Kind: "escalate", Name: "step 1", Verdict: "pass", At: at("03:10:02")}
	escalating := trace.Delivery{Header: delivery.Header{ID: "1/page", Handler: "page"}, Verdict: trace.Held, Reason: "step 1 of 2 notified alice by mail",
		Steps: []trace.Step{step, {Kind: "escalate", Name: "step 2", Verdict: "pass", At: at("03:11:02")}}}
	escalated := trace.Delivery{Header: delivery.Header{ID: "1/page", Handler: "page"}, Verdict: trace.Delivered, Reason: "after 1 steps: resolved; told alice",
		Steps: []trace.Step{step}}
	step.Reached = at("03:12:30")
	late := trace.Delivery{Header: delivery.Header{ID: "1/page", Handler: "page"}, Verdict: trace.Delivered, Steps: []trace.Step{step,
		{Kind: "escalate", Name: "step 2", Verdict: "pass", At: at("03:11:02"), Reached: at("03:12:20")}}}
	deleted := escalating
	deleted.Verdict, deleted.Reason = trace.Dropped, "the handler was deleted"
	folded := trace.Delivery{Header: delivery.Header{ID: "2/page", Handler: "page"}, Verdict: trace.Merged, Into: "1/page",
		Reason: "the escalation that began before goes on"}
	const failing = "web1/disk fails (status 2, 3 times in a row, last OK 02:58:00). "
	for name, tc := range map[string]struct {
		status    uint32
		gone      bool
		outcomes  []trace.Outcome
		simulated []trace.Delivery
		why, want string
		moment    string // if set, the answer is of this time of day
	}{
		"delivered": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2, delivered)},
			want: failing + "It did alert: mail at 03:10:01."},
		"delivered, then denied": {status: 2, outcomes: []trace.Outcome{outcome("03:12:00", 2, early), outcome("03:10:00", 2, delivered)},
			want: failing + "It did alert: mail at 03:10:01. A later result did not: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"delivered, then silenced": {status: 2, outcomes: []trace.Outcome{outcome("03:12:00", 2,
			trace.Delivery{Verdict: trace.Silenced, Reason: "it is silenced by rack-r1; no handler in its namespace takes silenced events"}),
			outcome("03:10:00", 2, delivered)},
			want: failing + "It did alert: mail at 03:10:01. A later result did not: it is silenced by rack-r1; no handler in its namespace takes silenced events."},
		"delivered in an earlier incident": {status: 2,
			outcomes: []trace.Outcome{outcome("03:12:00", 2, early), outcome("03:11:00", 0, delivered),
				outcome("03:10:00", 2, delivered)},
			want: failing + "It did not alert: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"filtered by hours": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Filtered,
				Reason: "filter office denies it: it is outside its hours",
				Steps:  []trace.Step{{Kind: "filter", Name: "office", Verdict: "deny"}}})},
			want: failing + "It did not alert: mail: filter office denies it: it is outside its hours."},
		"silenced": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Silenced,
				Reason: "it is silenced by entity:web1:*"})},
			want: failing + "It did not alert: mail: it is silenced by entity:web1:*."},
		"inhibited": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Inhibited,
				Reason: "it depends on router/ping, which fails"})},
			want: failing + "It did not alert: mail: it is inhibited: it depends on router/ping, which fails."},
		"no handler": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Verdict: trace.NoHandler, Updated: at("03:10:00"), Reason: "handler mial was not defined"})},
			want: failing + "It did not alert: no handler took it: handler mial was not defined."},
		"dead": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Dead, Attempts: []trace.Attempt{
				{At: at("03:10:01"), Result: "failed", Status: 75},
				{At: at("03:10:11"), Result: "failed", Status: 1, Output: "\n  550 no such user\nsecond line\n"}}})},
			want: failing + "It did not alert: mail: the handler failed in 2 attempts: failed (status 1): 550 no such user (to send it again: lapwing deadletter redrive --handler mail --newest --failing-only)."},
		"waiting": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Waiting, Attempts: []trace.Attempt{
				{At: at("03:10:01"), Result: "timeout", Error: "no answer in 5s", Next: at("03:14:30")}}})},
			want: failing + "It has not alerted yet: mail: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"folded": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Merged, Reason: "rack-17: 412 keepalives",
				Attempts: []trace.Attempt{{At: at("03:10:30")}}})},
			want: failing + "It did not alert on its own: mail: it went out at 03:10:30 with others in one alert: rack-17: 412 keepalives."},
		"by one and not by another": {status: 2, outcomes: []trace.Outcome{outcome("03:12:00", 2, early),
			outcome("03:10:00", 2, delivered, trace.Delivery{Header: delivery.Header{Handler: "pager"}, Verdict: trace.Dead,
				Reason: "status 1"})},
			want: failing + "It did alert: mail at 03:10:01. It did not alert by other routes: pager: the handler failed: " +
				"status 1 (to send it again: lapwing deadletter redrive --handler pager --newest --failing-only). " +
				"A later result did not: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"defined since": {status: 2, outcomes: []trace.Outcome{outcome("03:12:00", 2, early),
			outcome("03:10:00", 2, trace.Delivery{Verdict: trace.NoHandler})},
			want: failing + "It did not alert: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"grouped": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Grouped, Reason: "rack-17"})},
			want: failing + "It has not alerted yet: mail: it waits for its group to go out: rack-17."},
		"broken": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Pipeline: "alerts", Workflow: "mail"}, Verdict: trace.Failed,
				Reason: "there is no filter \"x\""})},
			want: failing + "It did not alert: alerts/mail: the workflow could not be run: there is no filter \"x\"."},
		"many": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "a"}, Verdict: trace.Silenced},
			trace.Delivery{Header: delivery.Header{Handler: "b"}, Verdict: trace.Silenced},
			trace.Delivery{Header: delivery.Header{Handler: "c"}, Verdict: trace.Silenced},
			trace.Delivery{Header: delivery.Header{Handler: "d"}, Verdict: trace.Silenced},
			trace.Delivery{Header: delivery.Header{Handler: "e"}, Verdict: trace.Silenced},
			trace.Delivery{Header: delivery.Header{Handler: "f"}, Verdict: trace.Dropped})},
			want: failing + "It did not alert: f: it was dropped; a, b, c, d, e: it is silenced."},
		"untraced": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 1, delivered)}, simulated: []trace.Delivery{early},
			want: failing + "There is no trace of this. With the present definitions it would not alert: mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1."},
		"untraced and fine": {status: 2, simulated: []trace.Delivery{{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered}}, want: failing +
			"There is no trace of this. With the present definitions it would alert: mail."},
		"untraced and not tried": {status: 2, why: "access denied", want: failing + "There is no trace of this: access denied."},
		"passing":                {status: 0, want: "web1/disk passes (status 0), so there is nothing to alert about."},
		"passing after an incident": {status: 0, outcomes: []trace.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:11:00", 2, early), outcome("03:10:00", 2, delivered)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. The incident before it did alert: mail at 03:10:01."},
		"passing while an attempt is due": {status: 0, outcomes: []trace.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:10:00", 2, delivered, waiting)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it did alert: mail at 03:10:01. Still open: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"passing before any attempt succeeded": {status: 0, outcomes: []trace.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:10:00", 2, waiting)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it has not alerted yet: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"passing while an earlier incident waits": {status: 0, outcomes: []trace.Outcome{outcome("03:13:00", 0, delivered),
			outcome("03:12:00", 2, delivered), outcome("03:11:00", 0, delivered), outcome("03:10:00", 2, waiting)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:13:00: mail: delivered. " +
				"The incident before it did alert: mail at 03:10:01. " +
				"Still open of other events: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"failing while an earlier incident waits": {status: 2, outcomes: []trace.Outcome{outcome("03:12:00", 2, delivered),
			outcome("03:11:00", 0, delivered), outcome("03:10:00", 2, waiting)},
			want: failing + "It did alert: mail at 03:10:01. " +
				"Still open of other events: pager: the last attempt failed: no answer in 5s, the next is at 03:14:30."},
		"escalating": {status: 2, outcomes: []trace.Outcome{outcome("03:12:00", 2, folded), outcome("03:10:00", 2, escalating)},
			want: failing + "It did alert: page at 03:10:02. Its escalation goes on: page: step 1 of 2 notified alice by mail."},
		"the escalation's handler was deleted": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2, deleted)},
			want: failing + "It did alert: page at 03:10:02. Its escalation is over: page: it was dropped: the handler was deleted."},
		"silenced by very many": {status: 2, outcomes: []trace.Outcome{outcome("03:10:00", 2, trace.Delivery{
			Header: delivery.Header{ID: "1/mail", Handler: "mail"}, Verdict: trace.Silenced, Steps: []trace.Step{{Name: notSilenced, Verdict: "deny",
				Saw: []trace.Value{{Name: "event.check.silenced", Value: "[a:*, b:* and 3 more]"}}}}})},
			want: failing + "It did not alert: mail: it is silenced by a:*, and silenced by b:*, and by 3 more."},
		"reached long after the step": {status: 0, outcomes: []trace.Outcome{outcome("03:10:00", 2, late)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. The incident before it did alert: page at 03:12:20."},
		"before anyone was reached": {moment: "03:11:30", outcomes: []trace.Outcome{outcome("03:10:00", 2, late)},
			want: "At 03:11:30 web1/disk failed (status 2, failing since 03:10:00). It had not alerted by then; it did later: page at 03:12:20."},
		"after someone was reached": {moment: "03:12:30", outcomes: []trace.Outcome{outcome("03:10:00", 2, late)},
			want: "At 03:12:30 web1/disk failed (status 2, failing since 03:10:00). It did alert: page at 03:12:20."},
		"escalating behind an acknowledgement": {status: 2, outcomes: []trace.Outcome{outcome("03:13:00", 2, folded),
			outcome("03:12:00", 2, trace.Delivery{Header: delivery.Header{ID: "3/page", Handler: "page"}, Verdict: trace.Silenced, Reason: "silenced"}),
			outcome("03:10:00", 2, escalating)},
			want: failing + "It did alert: page at 03:10:02. Its escalation goes on: page: step 1 of 2 notified alice by mail."},
		"resolved in a quiet time": {status: 0, outcomes: []trace.Outcome{outcome("03:12:00", 0, delivered),
			outcome("03:11:00", 1, folded), outcome("03:10:00", 1, trace.Delivery{Header: delivery.Header{ID: "1/page", Handler: "page"}, Verdict: trace.Filtered, Reason: "resolved before anyone was notified; it waited: calendar nights"})},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it did not alert: page: resolved before anyone was notified; it waited: calendar nights."},
		"passing while it escalates": {status: 0, outcomes: []trace.Outcome{outcome("03:12:00", 0, delivered), outcome("03:10:00", 2, escalating)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:12:00: mail: delivered. " +
				"The incident before it did alert: page at 03:10:02. Still open: page: it is held: step 1 of 2 notified alice by mail."},
		"escalated and resolved": {status: 0, outcomes: []trace.Outcome{outcome("03:13:00", 0,
			trace.Delivery{Header: delivery.Header{Handler: "page"}, Verdict: trace.Delivered}), outcome("03:10:00", 2, escalated)},
			want: "web1/disk passes (status 0), so there is nothing to alert about. Its resolution at 03:13:00: page: delivered. " +
				"The incident before it did alert: page at 03:10:02."},
		"untraced and escalating": {status: 2, simulated: []trace.Delivery{{Header: delivery.Header{Handler: "page"}, Verdict: trace.Held,
			Reason: "it begins an escalation, and step 1 notifies bob by mail now"}}, want: failing +
			"There is no trace of this. With the present definitions it would alert: page: it begins an escalation, and step 1 notifies bob by mail now."},
		"gone": {gone: true, outcomes: []trace.Outcome{outcome("03:10:00", 2, early)},
			want: "There is no event web1/disk now. Its last incident did not alert: mail: filter occurrences denied it: " +
				"event.check.occurrences == 3, and event.check.occurrences was 1."},
		"unknown": {gone: true, want: "There is no event web1/disk and no trace of one."},
	} {
		a := &Account{Entity: "web1", Check: "disk", Now: whyNow, Outcomes: tc.outcomes, Simulated: tc.simulated, Why: tc.why}
		switch {
		case tc.moment != "":
			a.At = time.UnixMilli(at(tc.moment))
		case !tc.gone:
			a.Event = present(tc.status, 3)
		}
		if got := spoken(a.sentence()); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

// TestNext: a failing event without a trace may have a delivery that waits on disk.
func TestNext(t *testing.T) {
	delivered := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered}
	waits := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Waiting}
	dead := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Dead}
	silenced := trace.Delivery{Verdict: trace.Silenced, Steps: []trace.Step{{Name: notSilenced, Verdict: trace.Deny,
		Saw: []trace.Value{{Name: "event.check.silenced", Value: "[entity:web1:disk, gone, ack, other]"}}}}}
	for name, tc := range map[string]struct {
		outcomes  []trace.Outcome
		simulated []trace.Delivery
		want      []Next
	}{
		"no trace":             {nil, []trace.Delivery{delivered}, []Next{{SeeWhetherWaiting, "mail"}, {SeeNotifications, ""}}},
		"no trace, no handler": {nil, []trace.Delivery{{Verdict: trace.NoHandler}}, []Next{{SeeHandlers, ""}, {GiveHandlers, ""}}},
		"a trace":              {[]trace.Outcome{outcome("03:10:00", 2, delivered)}, nil, []Next{{SeeNotifications, ""}}},
		"it waits":             {[]trace.Outcome{outcome("03:10:00", 2, waits)}, nil, []Next{{SeeWaiting, "mail"}, {SeeNotifications, ""}}},
		"dead":                 {[]trace.Outcome{outcome("03:10:00", 2, dead)}, nil, []Next{{SeeDeadLetters, "mail"}, {Redrive, "mail"}}},
		"denied": {[]trace.Outcome{outcome("03:10:00", 2, denied("gold", "tier == 1", "tier", "2"))}, nil,
			[]Next{{SeeFilter, "gold"}, {TryDefinitions, ""}}},
		"silenced": {[]trace.Outcome{outcome("03:10:00", 2, silenced)}, nil,
			[]Next{{Unsilence, ""}, {SeeAudit, "gone"}, {Unacknowledge, ""}, {DeleteSilence, "other"}}},
		"nothing": {nil, nil, []Next{{SeeHistory, ""}}},
	} {
		a := &Account{Entity: "web1", Check: "disk", Event: present(2, 1), Now: whyNow, Outcomes: tc.outcomes, Simulated: tc.simulated,
			Silences: map[string]*Silence{"gone": {Ended: "deleted", Silence: new(resource.Silenced)},
				"ack": {Silence: &resource.Silenced{Acknowledgement: true}}}}
		if steps := a.next(); !slices.Equal(steps, tc.want) {
			t.Errorf("%s: %v, want %v", name, steps, tc.want)
		}
	}
}

// TestWhyBeforeRepeats: the answer says of each handler what became of the incident's own alert before it says what became
// of later results, however many traces are shown.
func TestWhyBeforeRepeats(t *testing.T) {
	one := func(handler string, verdict trace.Verdict, attempts ...trace.Attempt) trace.Delivery {
		return trace.Delivery{Header: delivery.Header{ID: "1/" + handler, Handler: handler}, Verdict: verdict, Attempts: attempts}
	}
	tired := func(handler string) trace.Delivery {
		return trace.Delivery{Header: delivery.Header{ID: "2/" + handler, Handler: handler}, Verdict: trace.Filtered,
			Reason: "filter fatigue_check denies it", Steps: []trace.Step{{Kind: "filter", Name: "fatigue_check", Verdict: "deny"}}}
	}
	failed := trace.Attempt{At: at("03:10:01"), Result: "error", Error: "connection refused"}
	retried := failed
	retried.Next = at("03:14:30")
	dead := func(handler string) trace.Delivery { return one(handler, trace.Dead, failed) }
	waiting := func(handler string) trace.Delivery { return one(handler, trace.Waiting, retried) }
	because := func(d trace.Delivery, reason string) trace.Delivery { d.Reason = reason; return d }
	const (
		deadText = "the handler failed in 1 attempt: connection refused (to send it again: lapwing deadletter redrive --handler "
		waits    = "the last attempt failed: connection refused, the next is at 03:14:30"
		denies   = "filter fatigue_check denies it"
		onDisk   = "it waits on disk"
	)
	behind := one("hook", trace.Waiting)
	behind.ID, behind.Reason = "2/hook", "it waits behind an earlier delivery of the check"
	silenced := because(one("hook", trace.Silenced), "it is silenced by quiet")
	repeated := silenced
	repeated.Repeats, repeated.Last = 3, at("03:12:30")
	office := trace.Delivery{Header: delivery.Header{Handler: "hook"}, Verdict: trace.Filtered, Reason: "filter office denies it: it is outside its hours",
		Steps: []trace.Step{{Kind: "filter", Name: "office", Verdict: "deny"}}}
	hook := tired("hook")
	for name, tc := range map[string]struct {
		first []trace.Delivery
		then  [][]trace.Delivery // oldest first; the default is one result that fatigue_check denies
		want  string
	}{
		"dead": {first: []trace.Delivery{dead("hook")},
			want: "It did not alert: hook: " + deadText + "hook --newest --failing-only). Its newest result: hook: " + denies + "."},
		"waiting": {first: []trace.Delivery{waiting("hook")},
			want: "It has not alerted yet: hook: " + waits + ". Its newest result: hook: " + denies + "."},
		"shed": {first: []trace.Delivery{because(one("hook", trace.Dropped), "too many deliveries of the handler were on disk")},
			want: "It did not alert: hook: it was dropped: too many deliveries of the handler were on disk. Its newest result: hook: " +
				denies + "."},
		"the first waits, the next is shed": {first: []trace.Delivery{because(one("hook", trace.Waiting), onDisk)},
			then: [][]trace.Delivery{{because(one("hook", trace.Dropped), "too many deliveries of the handler were on disk")}},
			want: "It has not alerted yet: hook: it waits on disk. " +
				"Its newest result: hook: it was dropped: too many deliveries of the handler were on disk."},
		"the first waits, and the next behind it": {first: []trace.Delivery{because(one("hook", trace.Waiting), onDisk)},
			then: [][]trace.Delivery{{behind}}, want: "It has not alerted yet: hook: it waits on disk."},
		"not run": {first: []trace.Delivery{because(one("hook", trace.Failed), `there is no filter "x"`)},
			want: `It did not alert: hook: the workflow could not be run: there is no filter "x". Its newest result: hook: ` + denies + "."},
		"delivered": {first: []trace.Delivery{one("hook", trace.Delivered, trace.Attempt{At: at("03:10:01"), Result: "ok"})},
			want: "It did alert: hook at 03:10:01. A later result did not: hook: " + denies + "."},
		"in a group": {first: []trace.Delivery{because(one("hook", trace.Grouped), "rack-17")},
			want: "It has not alerted yet: hook: it waits for its group to go out: rack-17. Its newest result: hook: " + denies + "."},
		"with others": {first: []trace.Delivery{because(one("hook", trace.Merged, failed), "rack-17: 4 keepalives")},
			want: "It did not alert on its own: hook: it went out at 03:10:01 with others in one alert: rack-17: 4 keepalives. " +
				"Its newest result: hook: " + denies + "."},
		"held": {first: []trace.Delivery{because(one("hook", trace.Held), "calendar nights")},
			want: "It has not alerted yet: hook: it is held: calendar nights. Its newest result: hook: " + denies + "."},
		"silenced": {first: []trace.Delivery{silenced},
			want: "It did not alert: hook: it was silenced by quiet. Its newest result: hook: " + denies + "."},
		"inhibited": {first: []trace.Delivery{because(one("hook", trace.Inhibited), "it depends on router/ping")},
			want: "It did not alert: hook: it was inhibited: it depends on router/ping. Its newest result: hook: " + denies + "."},
		"denied by another filter": {first: []trace.Delivery{office},
			want: "It did not alert: hook: filter office denies it: it is outside its hours. Its newest result: hook: " + denies + "."},
		"denied, silenced, denied": {first: []trace.Delivery{hook}, then: [][]trace.Delivery{{silenced}, {hook}},
			want: "It did not alert: hook: it was silenced by quiet. Its newest result: hook: " + denies + "."},
		"dead, and again": {first: []trace.Delivery{dead("hook")}, then: [][]trace.Delivery{{hook}, {dead("hook")}},
			want: "It did not alert: hook: " + deadText + "hook --newest --failing-only)."},
		"dead, delivered, denied": {first: []trace.Delivery{dead("hook")},
			then: [][]trace.Delivery{{one("hook", trace.Delivered, trace.Attempt{At: at("03:11:01"), Result: "ok"})}, {hook}},
			want: "It did alert: hook at 03:11:01. A later result did not: hook: " + denies + "."},
		"delivered, dead, denied": {first: []trace.Delivery{one("hook", trace.Delivered, trace.Attempt{At: at("03:10:01"), Result: "ok"})},
			then: [][]trace.Delivery{{dead("hook")}, {hook}},
			want: "It did alert: hook at 03:10:01. A later result did not: hook: " + deadText + "hook --newest --failing-only)."},
		"another waits behind it": {first: []trace.Delivery{waiting("hook")}, then: [][]trace.Delivery{{behind}},
			want: "It has not alerted yet: hook: " + waits + "."},
		"the handlers differ": {first: []trace.Delivery{dead("curl"), waiting("hook"), dead("short")},
			then: [][]trace.Delivery{{tired("curl"), tired("hook"), tired("short")}},
			want: "It has not alerted yet: hook: " + waits + "; curl: " + deadText + "curl --newest --failing-only); short: " + deadText + "short --newest --failing-only). " +
				"Its newest result: curl, hook, short: " + denies + "."},
		"one delivered": {first: []trace.Delivery{dead("curl"), one("mail", trace.Delivered, trace.Attempt{At: at("03:10:02"), Result: "ok"})},
			then: [][]trace.Delivery{{tired("curl"), tired("mail")}},
			want: "It did alert: mail at 03:10:02. It did not alert by other routes: curl: " + deadText + "curl --newest --failing-only). " +
				"A later result did not: mail: " + denies + ". Its newest result: curl: " + denies + "."},
		"repeats": {first: []trace.Delivery{repeated, dead("curl")}, then: [][]trace.Delivery{{tired("curl")}},
			want: "It did not alert: curl: " + deadText + "curl --newest --failing-only); hook: it is silenced by quiet. Its newest result: curl: " + denies + "."},
	} {
		a := &Account{Entity: "web1", Check: "disk", Now: whyNow, Event: present(2, 3)}
		a.Outcomes = []trace.Outcome{outcome("03:10:00", 2, tc.first...)}
		if tc.then == nil {
			tc.then = [][]trace.Delivery{{hook}}
		}
		for i, then := range tc.then {
			a.Outcomes = append([]trace.Outcome{outcome([]string{"03:11:00", "03:12:00"}[i], 2, then...)}, a.Outcomes...)
		}
		_, got, _ := strings.Cut(spoken(a.sentence()), "). ")
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
		// It passes by now: of the incident before, the same holds.
		a.Event = present(0, 1)
		a.Outcomes = append([]trace.Outcome{outcome("03:13:00", 0)}, a.Outcomes...)
		_, past, _ := strings.Cut(spoken(a.sentence()), "The incident before it")
		now, _, _ := strings.Cut(strings.TrimPrefix(tc.want, "It"), ". ")
		now = strings.TrimSuffix(strings.Replace(now, "on its own: ", ": ", 1), ".")
		now = strings.ReplaceAll(strings.Replace(now, "alert : ", "alert: ", 1), "it is silenced", "it was silenced")
		if !strings.HasPrefix(past, now) {
			t.Errorf("%s, before it passes:\n got %s\nwant %s", name, past, now)
		}
	}
}

// TestWould has the first line of a simulation.
func TestWould(t *testing.T) {
	mail := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered}
	page := trace.Delivery{Header: delivery.Header{Handler: "page"}, Verdict: trace.Held, Reason: "it begins an escalation, and step 1 notifies bob by mail now"}
	for _, tc := range []struct {
		deliveries []trace.Delivery
		want       string
	}{
		{[]trace.Delivery{mail}, "It would be sent to mail."},
		{[]trace.Delivery{page}, "It would be held by page: it begins an escalation, and step 1 notifies bob by mail now."},
		{[]trace.Delivery{page, mail}, "It would be sent to mail. It would be held by page: it begins an escalation, and step 1 notifies bob by mail now."},
		{[]trace.Delivery{{Header: delivery.Header{Handler: "page"}, Verdict: trace.Held, Reason: "it begins an escalation, and step 1 finds no one to notify now",
			Steps: []trace.Step{{Kind: "escalate", Name: "step 1", Verdict: "error"}}}},
			"No handler would get it: page: it is held: it begins an escalation, and step 1 finds no one to notify now."},
		{[]trace.Delivery{{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Filtered, Reason: "closed"}}, "No handler would get it: mail: closed."},
	} {
		if got := new(Account).would(tc.deliveries); got != tc.want {
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
			"under way to bob by mail: 3 attempts failed, the last: connection refused; next 04:15:00"},
	} {
		a := &Account{Entity: "web1", Check: "disk", Now: now, Event: present(2, 3), Outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "page"}, Verdict: trace.Held, Reason: tc.reason,
				Steps: []trace.Step{{Kind: "escalate", Name: "step 1", Verdict: "pass", At: at("03:10:02")}}})},
			Escalations: []resource.Escalation{{Handler: "page", Held: tc.held, Next: now.Add(6 * time.Minute).UnixMilli(), Tries: tc.tries}}}
		if got := spoken(a.sentence()); !strings.HasSuffix(got, " Its escalation "+tc.want) {
			t.Errorf("%s: got %s", name, got)
		}
		if notes := a.notes(); len(notes) != 1 || !notes[0].Open || !strings.HasPrefix(spoken(notes[0].Now), tc.now) || tc.now == "" && notes[0].Now != "" {
			t.Errorf("%s: the notes are %+v, want one of the present: %q", name, notes, tc.now)
		}
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
		a := &Account{Entity: "web1", Check: "disk", Now: now, Event: present(2, 300), Outcomes: []trace.Outcome{outcome("03:10:00", 2,
			trace.Delivery{Header: delivery.Header{Handler: "page"}, Verdict: trace.Merged, Into: "0-1-1/page", Reason: "the escalation that began before goes on"})},
			Escalations: []resource.Escalation{tc.e}}
		if got := spoken(a.sentence()); !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

// TestBrief: whether people were told, when and by whom.
func TestBrief(t *testing.T) {
	header := delivery.Header{ID: "1/page", Handler: "page"}
	mail := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Delivered, Attempts: []trace.Attempt{{At: at("03:10:01"), Result: "ok"}}}
	early := denied("occurrences", "event.check.occurrences == 3", "event.check.occurrences", "1")
	step := trace.Step{Kind: trace.StepEscalate, Name: "step 1", Verdict: trace.Pass, At: at("03:10:02"),
		Saw: []trace.Value{{Name: trace.SawReached, Value: "alice by mail, bob by mail"}}}
	page := trace.Delivery{Header: header, Verdict: trace.Held, Steps: []trace.Step{step}}
	begun := trace.Delivery{Header: header, Verdict: trace.Held, Reason: "step 1 is under way"}
	grouped := trace.Delivery{Header: delivery.Header{Handler: "mail"}, Verdict: trace.Merged, Attempts: []trace.Attempt{{At: at("03:10:30")}}}
	part := trace.Delivery{Header: delivery.Header{ID: "9/page", Handler: "page"}, Verdict: trace.Merged, Into: "1/page"}
	for name, tc := range map[string]struct {
		status      uint32
		outcomes    []trace.Outcome
		escalations []resource.Escalation
		want        string // told, when first, by whom, and why not
	}{
		"mail":       {2, []trace.Outcome{outcome("03:12:00", 2, early), outcome("03:10:00", 2, mail)}, nil, "yes 03:10:01 mail"},
		"page":       {2, []trace.Outcome{outcome("03:10:00", 2, page, mail)}, nil, "yes 03:10:01 mail page(alice by mail,bob by mail)"},
		"not yet":    {2, []trace.Outcome{outcome("03:10:00", 2, begun)}, nil, "waiting page: it is held: step 1 is under way"},
		"no one":     {2, []trace.Outcome{outcome("03:10:00", 2, begun)}, []resource.Escalation{{Handler: "page", Steps: 2}}, "no page: step 1 is under way"},
		"denied":     {2, []trace.Outcome{outcome("03:10:00", 2, early)}, nil, "no mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1"},
		"in a group": {2, []trace.Outcome{outcome("03:10:00", 2, grouped)}, nil, "yes 03:10:30 mail"},
		"of an escalation": {2, []trace.Outcome{outcome("03:10:00", 2, part)}, []resource.Escalation{{Handler: "page", Began: at("02:00:00"), Steps: 1, Notified: []string{"alice"}, Next: at("03:20:00")}},
			"yes page(alice)"},
		"of one that reached no one": {2, []trace.Outcome{outcome("03:10:00", 2, part)}, []resource.Escalation{{Handler: "page", Began: at("02:00:00"), Steps: 1}},
			"no page: it began at 02:00:00; all its 1 step are taken, and nothing more follows"},
		"of an earlier incident": {2, []trace.Outcome{outcome("03:12:00", 2, early), outcome("03:11:00", 0), outcome("03:10:00", 2, mail)}, nil,
			"no mail: filter occurrences denied it: event.check.occurrences == 3, and event.check.occurrences was 1"},
		"passes":         {0, []trace.Outcome{outcome("03:11:00", 0), outcome("03:10:00", 2, mail)}, nil, "nothing"},
		"no trace":       {2, nil, nil, "unknown"},
		"no trace since": {2, []trace.Outcome{outcome("03:11:00", 0, mail)}, nil, "unknown"},
		"worse since":    {2, []trace.Outcome{outcome("03:11:00", 1, mail)}, nil, "yes 03:10:01 mail"},
	} {
		a := &Account{Entity: "web1", Check: "disk", Event: present(tc.status, 1), Now: whyNow, Outcomes: tc.outcomes, Escalations: tc.escalations}
		v := a.Brief()
		got := string(v.Told)
		if v.FirstTold > 0 {
			got += " " + time.UnixMilli(v.FirstTold).Format(time.TimeOnly)
		}
		for _, one := range v.By {
			got += " " + one.Handler
			if one.Contacts != nil {
				got += "(" + strings.Join(one.Contacts, ",") + ")"
			}
		}
		if v.Reason != "" {
			got += " " + spoken(v.Reason)
		}
		if got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

func BenchmarkBrief(b *testing.B) {
	early := denied("occurrences", "event.check.occurrences == 3", "event.check.occurrences", "1")
	a := &Account{Entity: "web1", Check: "disk", Event: present(2, 1), Now: whyNow}
	for range 20 {
		a.Outcomes = append(a.Outcomes, outcome("03:10:00", 2, early, early))
	}
	b.ReportAllocs()
	for b.Loop() {
		a.Brief()
	}
}

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// pastEvents are traces by entity/check, and the requested limits.
type pastEvents struct {
	events  map[string][]trace.Outcome
	limits  []int
	missing []string
}

func (p *pastEvents) Of(_ context.Context, q trace.Query) ([]trace.Outcome, []string, error) {
	p.limits = append(p.limits, q.Limit)
	events := slices.Clone(p.events[q.Namespace+"/"+q.Entity+"/"+q.Check])
	return slices.DeleteFunc(events, func(o trace.Outcome) bool { return q.Until > 0 && o.Received > q.Until }), p.missing, nil
}

func (p *pastEvents) Newest(ctx context.Context, list []trace.Query) ([]trace.Newest, []string, error) {
	return newestOf(ctx, p, list)
}

// newestOf asks for each check by itself.
func newestOf(ctx context.Context, t Traces, list []trace.Query) (all []trace.Newest, missing []string, err error) {
	for _, q := range list {
		var one trace.Newest
		if one.Outcomes, missing, err = t.Of(ctx, q); err != nil {
			return nil, nil, err
		}
		all = append(all, one)
	}
	return all, missing, nil
}

// letters are dead letters in memory.
type letters struct {
	list    []delivery.DeadLetter
	redrove []string
	choices []delivery.Redrive
	until   time.Time // deadline of the last Redrive
}

func (l *letters) DeadLetters(namespace, handler, after string, limit int) (page []delivery.DeadLetter, next string, err error) {
	for _, d := range l.list {
		if d.ID > after && (namespace == "" || d.Namespace == namespace) && (handler == "" || d.Handler == handler) {
			if len(page) == limit {
				return page, page[limit-1].ID, nil
			}
			d.Event = nil
			page = append(page, d)
		}
	}
	return page, "", nil
}

func (l *letters) DeadLetter(namespace, id string) (*delivery.DeadLetter, bool, error) {
	for _, d := range l.list {
		if d.ID == id && (namespace == "" || d.Namespace == namespace) {
			return &d, true, nil
		}
	}
	return nil, false, nil
}

func (l *letters) Redrive(ctx context.Context, choice delivery.Redrive) (told delivery.Redriven, err error) {
	l.choices = append(l.choices, choice)
	before := l.ids()
	l.until, _ = ctx.Deadline()
	if choice.DryRun {
		return delivery.Redriven{
			Count: len(before), Passed: 1, Older: 3, NoHandler: 2, MissingHandlers: []string{"gone"},
			Letters: []delivery.DeadLetter{{ID: before[0]}},
		}, nil
	}
	told.Count, err = l.DeleteDeadLetters(ctx, choice.Namespace, choice.IDs, choice.Handler)
	for _, id := range before {
		if !slices.Contains(l.ids(), id) {
			l.redrove = append(l.redrove, id)
		}
	}
	return told, err
}

func (l *letters) DeleteDeadLetters(_ context.Context, namespace string, ids []string, handler string) (int, error) {
	n := len(l.list)
	l.list = slices.DeleteFunc(l.list, chosenLetters(namespace, ids, handler))
	return n - len(l.list), nil
}

func (l *letters) CountDeadLetters(_ context.Context, namespace string, ids []string, handler string) (int, []delivery.DeadLetter, error) {
	is := chosenLetters(namespace, ids, handler)
	found := slices.DeleteFunc(slices.Clone(l.list), func(d delivery.DeadLetter) bool { return !is(d) })
	return len(found), found[:min(1, len(found))], nil
}

func chosenLetters(namespace string, ids []string, handler string) func(delivery.DeadLetter) bool {
	return func(d delivery.DeadLetter) bool {
		if namespace != "" && d.Namespace != namespace {
			return false
		}
		if ids != nil {
			return slices.Contains(ids, d.ID)
		}
		return handler == "" || d.Handler == handler
	}
}

func (l *letters) ids() (ids []string) {
	for _, d := range l.list {
		ids = append(ids, d.ID)
	}
	return ids
}

// TestTraceOfCalendars: why a calendar was not active is for users who may list calendars.
func TestTraceOfCalendars(t *testing.T) {
	outcomes := func(trace.Query) []trace.Outcome {
		return []trace.Outcome{{Namespace: "default", Entity: "web1", Check: "disk", Deliveries: []trace.Delivery{{
			Steps: []trace.Step{{Kind: trace.StepFilter, Name: "hours", Verdict: trace.Deny, Saw: []trace.Value{
				{Name: `in_calendar("work")`, Value: "false (excepted: Merger)"}, {Name: "event.check.status", Value: "2 (two)"}}}},
		}}}}
	}
	s := newServer(t, func(o *Options) { o.Trace = tracesOf(outcomes) })
	s.grant("readers", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"events"}})
	s.grant("planners", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"events", "calendars"}})
	for group, want := range map[string]string{
		"readers":  `{"name":"in_calendar(\"work\")","value":"false"},{"name":"event.check.status","value":"2 (two)"}`,
		"planners": `{"name":"in_calendar(\"work\")","value":"false (excepted: Merger)"},{"name":"event.check.status","value":"2 (two)"}`,
	} {
		a := s.do(http.MethodGet, "/api/lapwing/v1/namespaces/default/events/web1/disk/trace", "",
			"Authorization", "Bearer "+s.user(group+"1", group))
		if !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", group, a.status, a.body)
		}
	}
}

// tracesOf answers questions for traces.
type tracesOf func(trace.Query) []trace.Outcome

func (f tracesOf) Of(_ context.Context, q trace.Query) ([]trace.Outcome, []string, error) {
	return f(q), nil, nil
}

func (f tracesOf) Newest(ctx context.Context, list []trace.Query) ([]trace.Newest, []string, error) {
	return newestOf(ctx, f, list)
}

func TestTrace(t *testing.T) {
	past := &pastEvents{events: map[string][]trace.Outcome{"default/web1/disk": {{
		Event: "0-7-0", Namespace: "default", Entity: "web1", Check: "disk", Status: 2, Incident: true, Received: 5,
		Deliveries: []trace.Delivery{{Header: delivery.Header{ID: "0-7-0/mail"}, Verdict: trace.Filtered,
			Steps: []trace.Step{{Kind: trace.StepFilter, Name: "hours", Verdict: trace.Deny}}},
			{Header: delivery.Header{ID: "0-7-0/page", Handler: "page"}, Steps: []trace.Step{{Kind: trace.StepEscalate, Name: "step 1", At: 6}}},
			{Header: delivery.Header{ID: "0-7-0/page/1//mail", Handler: "mail", Escalation: "page", Step: 1}, Verdict: trace.Delivered, Updated: 9}},
	}}}}
	s := newServer(t, func(o *Options) { o.Trace = past })
	const path = "/api/lapwing/v1/namespaces/default/events/web1/disk/trace"
	a := s.do(http.MethodGet, path, "")
	var got []trace.Outcome
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if len(got) != 1 || got[0].Deliveries[0].Steps[0].Name != "hours" || got[0].Deliveries[0].Verdict != trace.Filtered {
		t.Errorf("trace %+v", got)
	}
	if step := got[0].Deliveries[1].Steps[0]; step.Reached != 9 || step.Verdict != trace.Pass {
		t.Errorf("step of an escalation: %+v", step)
	}
	if a := s.do(http.MethodGet, strings.Replace(path, "disk", "cpu", 1), ""); a.status != http.StatusOK || a.body != "[]" {
		t.Errorf("of a check without a trace: %d %s", a.status, a.body)
	}
	s.do(http.MethodGet, path+"?limit=3", "")
	s.do(http.MethodGet, path+"?limit=100000", "")
	if want := []int{tracePage, tracePage, 3, tracePageMax}; !slices.Equal(past.limits, want) {
		t.Errorf("limits %v, want %v", past.limits, want)
	}
	if a := s.do(http.MethodGet, path+"?until=1970-01-01T00:00:00.004Z", ""); a.body != "[]" {
		t.Errorf("until before the event: %s", a.body)
	}
	for _, text := range []string{"0", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z"} {
		if a := s.do(http.MethodGet, path+"?until="+text, ""); a.body != "[]" {
			t.Errorf("until %s: %s", text, a.body)
		}
	}
	if a := s.do(http.MethodGet, path+"?until=noon", ""); a.status != http.StatusBadRequest {
		t.Errorf("until noon: %d", a.status)
	}
	past.limits = past.limits[:4]
	past.missing = []string{"b did not answer"}
	if a := s.do(http.MethodGet, path, ""); a.header.Get("Warning") != `299 lapwing "traces are missing: b did not answer"` {
		t.Errorf("headers of a trace without a member's: %v", a.header)
	}
	past.missing, past.limits = nil, past.limits[:4]

	// A user who sees only some events sees only their traces.
	token := s.user("eve", "eu")
	s.grant("eu", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	for _, tc := range []struct {
		entity, region string
		want           int
	}{{"web1", "eu", http.StatusOK}, {"web2", "us", http.StatusNotFound}, {"web3", "", http.StatusNotFound}} {
		if tc.region != "" {
			body := fmt.Sprintf(`{"entity":{"metadata":{"name":%q,"labels":{"region":%q}}},"check":{"metadata":{"name":"disk"},"interval":10,"status":2}}`, tc.entity, tc.region)
			if a := s.do(http.MethodPut, "/api/core/v2/namespaces/default/events/"+tc.entity+"/disk",
				body); a.status != http.StatusCreated {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if got := s.ask(http.MethodGet, strings.Replace(path, "web1", tc.entity, 1), token); got != tc.want {
			t.Errorf("trace of an event in region %q: %d, want %d", tc.region, got, tc.want)
		}
	}
}

func TestSimulate(t *testing.T) {
	var tried *resource.Event
	var draft *Draft
	var ran bool
	var at time.Time
	s := newServer(t, func(o *Options) {
		o.Simulate = func(_ context.Context, o *SimulateOptions) []trace.Delivery {
			tried, draft, ran, at = o.Event, o.Draft, o.RunCommands, o.At
			return []trace.Delivery{{
				Header: delivery.Header{Namespace: o.Namespace, Handler: "mail"}, Verdict: trace.Filtered,
			}}
		}
	})
	const path = "/api/lapwing/v1/namespaces/default/pipelines/simulate"
	f := func(token, body string, want int) string {
		t.Helper()
		a := s.do(http.MethodPost, path, body, "Authorization", "Bearer "+token)
		if a.status != want {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, want)
		}
		return a.body
	}
	f(s.token, `{"entity":"web1","check":"disk"}`, http.StatusNotFound)
	f(s.token, `{"entity":"web1"}`, http.StatusBadRequest)
	f(s.token, `{`, http.StatusBadRequest)
	f(s.token, `{"event":{"check":{"metadata":{"name":"disk"}}}}`, http.StatusBadRequest)
	if a := s.do(http.MethodPut, "/api/core/v2/namespaces/default/events/web1/disk",
		`{"entity":{"metadata":{"name":"web1"}},"check":{"metadata":{"name":"disk"},"interval":10,"status":2}}`); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if body := f(s.token, `{"entity":"web1","check":"disk"}`, http.StatusOK); !strings.Contains(body, `"verdict":"filtered"`) {
		t.Errorf("answer %s", body)
	}
	if tried.Check.Status != 2 || tried.Check.Occurrences != 1 || ran {
		t.Errorf("tried %+v, with commands %v", tried.Check, ran)
	}
	f(s.token, `{"event":{"entity":{"metadata":{"name":"web9"}},"check":{"metadata":{"name":"disk"},"interval":10,"status":1}},"run_commands":true}`, http.StatusOK)
	if tried.Entity.Metadata.Name != "web9" || tried.Check.Metadata.Namespace != "default" || tried.Timestamp == 0 || !ran {
		t.Errorf("tried %+v, with commands %v", tried, ran)
	}

	soon := time.Now().Unix() + 86400
	if body := f(s.token, fmt.Sprintf(`{"entity":"web1","check":"disk","at":%d}`, soon), http.StatusOK); at.Unix() != soon ||
		!strings.Contains(body, fmt.Sprintf(`"at":%d`, soon)) {
		t.Errorf("simulated at %s: %s", at, body)
	}
	for _, far := range []int64{-1, 1, soon + 3*366*86400, math.MaxInt64, math.MinInt64} {
		f(s.token, fmt.Sprintf(`{"entity":"web1","check":"disk","at":%d}`, far), http.StatusBadRequest)
	}

	const filter = `{"metadata":{"name":"hours"},"action":"allow","expressions":["true"]}`
	withDraft := `{"entity":"web1","check":"disk","filters":[` + filter + `]}`
	f(s.token, withDraft, http.StatusOK)
	if len(draft.Filters) != 1 || draft.Filters[0].Metadata.Namespace != "default" {
		t.Errorf("draft %+v", draft)
	}
	f(s.token, `{"entity":"web1","check":"disk","filters":[{"metadata":{"name":"hours"},"action":"maybe"}]}`, http.StatusBadRequest)
	f(s.token, `{"entity":"web1","check":"disk","filters":[null]}`, http.StatusBadRequest)
	f(s.token, `{"entity":"web1","check":"disk","filters":[{"metadata":{"name":"hours","namespace":"other"},"action":"allow","expressions":["true"]}]}`, http.StatusBadRequest)

	// A user who only sees events may simulate with the stored definitions, and not with drafts or commands.
	nobody := s.user("nobody")
	f(nobody, `{"entity":"web1","check":"disk"}`, http.StatusForbidden)
	viewer := s.user("viewer", "viewers")
	s.grant("viewers", "", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"*"}})
	f(viewer, `{"entity":"web1","check":"disk"}`, http.StatusOK)
	f(viewer, withDraft, http.StatusForbidden)
	f(viewer, `{"entity":"web1","check":"disk","run_commands":true}`, http.StatusForbidden)
	s.grant("viewers", "", resource.Rule{Verbs: []string{"get", "create", "update"}, Resources: []string{"events", "filters"}})
	f(viewer, withDraft, http.StatusOK)
}

func TestDeadLetters(t *testing.T) {
	l := &letters{}
	s := newServer(t, func(o *Options) { o.DeadLetters = l })
	fill := func() {
		l.list = nil
		for i, handler := range []string{"mail", "mail", "pager", "pager", "mail"} {
			l.list = append(l.list, delivery.DeadLetter{ID: fmt.Sprint("id", i),
				Namespace: []string{"default", "default", "default", "default", "other"}[i],
				Handler:   handler, Entity: "web1", Check: "disk", Reason: "given up", Attempts: 3, Event: &resource.Event{Timestamp: 1}})
		}
	}
	const path = "/api/lapwing/v1/namespaces/default/deadletters"
	list := func(path string) (ids []string, next string) {
		t.Helper()
		a := s.do(http.MethodGet, path, "")
		var got []delivery.DeadLetter
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", path, a.status, a.body, err)
		}
		for _, d := range got {
			ids = append(ids, d.ID)
			if d.Event != nil {
				t.Error("a list has events")
			}
		}
		return ids, a.header.Get("Sensu-Continue")
	}
	f := func(method, path, body string, status int, want string) {
		t.Helper()
		a := s.do(method, path, body)
		if a.status != status || strings.TrimSpace(a.body) != want && want != "-" {
			t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, a.status, a.body, status, want)
		}
	}
	fill()
	if ids, _ := list(path); fmt.Sprint(ids) != "[id0 id1 id2 id3]" {
		t.Errorf("list %v", ids)
	}
	if ids, _ := list(path + "?handler=pager"); fmt.Sprint(ids) != "[id2 id3]" {
		t.Errorf("of pager: %v", ids)
	}
	if ids, _ := list(strings.Replace(path, "default", "-", 1)); len(ids) != 5 {
		t.Errorf("of all namespaces: %v", ids)
	}
	first, next := list(path + "?limit=3")
	second, end := list(path + "?limit=3&continue=" + next)
	if fmt.Sprint(first, second, end) != "[id0 id1 id2] [id3]" {
		t.Errorf("pages %v %v %q", first, second, end)
	}
	a := s.do(http.MethodGet, path+"/id1", "")
	if !strings.Contains(a.body, `"event":{`) || a.status != http.StatusOK {
		t.Errorf("one: %d %s", a.status, a.body)
	}
	f(http.MethodGet, path+"/id4", "", http.StatusNotFound, "-") // in another namespace
	f(http.MethodGet, path+"/id9", "", http.StatusNotFound, "-")

	f(http.MethodPost, path+"/redrive", `{}`, http.StatusBadRequest, "-")
	f(http.MethodPost, path+"/redrive", `{"all":true,"handler":"mail"}`, http.StatusBadRequest, "-")
	f(http.MethodPost, dryRunPath+path+"/redrive", `{"handler":"mail","failing_only":true,"newest":true}`, http.StatusOK,
		`{"count":5,"resolutions":0,"passed":1,"older":3,"no_handler":2,"missing_handlers":["gone"],`+
			`"letters":[{"id":"id0","namespace":"","handler":"","entity":"","check":"","status":0,"reason":"","attempts":0,"first":0,"last":0}]}`)
	if want := (delivery.Redrive{Namespace: "default", Handler: "mail", FailingOnly: true, Newest: true, DryRun: true}); len(l.list) != 5 ||
		fmt.Sprint(l.choices) != fmt.Sprint([]delivery.Redrive{want}) {
		t.Errorf("a dry run asked for %+v and left %v", l.choices, l.ids())
	}
	f(http.MethodPost, dryRunPath+path+"/redrive", `{}`, http.StatusBadRequest, "-")
	for _, tc := range []struct {
		query  string
		status int
		want   string
	}{
		{"?all=true", http.StatusOK, `"count":4,"letters":[{"id":"id0",`},
		{"?handler=pager", http.StatusOK, `"count":2,"letters":[{"id":"id2",`},
		{"?id=id1&id=id7", http.StatusOK, `"count":1,"letters":[{"id":"id1",`},
		{"?handler=none", http.StatusOK, `"count":0}`},
		{"", http.StatusBadRequest, "is required"},
		{"/id1", http.StatusNoContent, ""},
		{"/id9", http.StatusNotFound, ""},
	} {
		if a := s.do(http.MethodDelete, dryRunPath+path+tc.query, ""); a.status != tc.status || !strings.Contains(a.body, tc.want) {
			t.Errorf("a dry run of deleting %s: %d %s, want %d %s", tc.query, a.status, a.body, tc.status, tc.want)
		}
	}
	s.grant("ops", "default", resource.Rule{Verbs: []string{"create", "delete"}, Resources: []string{"deadletters"}})
	blind := s.user("blind", "ops") // may not list
	if a := s.do(http.MethodDelete, dryRunPath+path+"?all=true", "", "Authorization", "Bearer "+blind); strings.TrimSpace(a.body) != `{"count":4}` {
		t.Errorf("who may not list them gets %d %s", a.status, a.body)
	}
	if a := s.do(http.MethodPost, dryRunPath+path+"/redrive", `{"all":true}`, "Authorization", "Bearer "+blind); a.status != http.StatusOK || strings.Contains(a.body, "letters") {
		t.Errorf("who may not list them gets %d %s", a.status, a.body)
	}
	if len(l.list) != 5 {
		t.Fatalf("dry runs left %v", l.ids())
	}
	f(http.MethodPost, path+"/redrive", `{"ids":["id1","id7"]}`, http.StatusOK, `{"count":1,"resolutions":0,"passed":0,"no_handler":0}`)
	f(http.MethodPost, path+"/redrive", `{"handler":"mail"}`, http.StatusOK, `{"count":1,"resolutions":0,"passed":0,"no_handler":0}`)
	f(http.MethodPost, path+"/redrive", `{"all":true}`, http.StatusOK, `{"count":2,"resolutions":0,"passed":0,"no_handler":0}`)
	if left := time.Until(l.until); left < cascadeTimeout/2 {
		t.Errorf("sending many again has to end within %v, as a short request", left)
	}
	if fmt.Sprint(l.redrove) != "[id1 id0 id2 id3]" {
		t.Errorf("redrove %v", l.redrove)
	}
	fill()
	f(http.MethodDelete, path+"/id3", "", http.StatusNoContent, "")
	f(http.MethodDelete, path+"/id3", "", http.StatusNotFound, "-")
	f(http.MethodDelete, path, "", http.StatusBadRequest, "-")
	f(http.MethodDelete, path+"?handler=pager", "", http.StatusOK, `{"count":1}`)
	f(http.MethodDelete, path+"?all=true", "", http.StatusOK, `{"count":2}`)
	if fmt.Sprint(l.ids()) != "[id4]" {
		t.Errorf("left %v", l.ids())
	}
	a = s.do(http.MethodGet, "/api/lapwing/v1/namespaces/default/audit?resource=deadletters", "")
	if n := strings.Count(a.body, `"resource":"deadletters"`); n != 6 {
		t.Errorf("%d entries in the audit log, want 6: %s", n, a.body)
	}
}

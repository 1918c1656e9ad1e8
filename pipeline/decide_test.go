package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/testpool"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// traces returns the traces of the last event, as "handler verdict: reason".
func (b *bench) traces() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []string
	for _, d := range b.traced {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s: %s", d.Handler, d.Verdict, d.Reason)))
		if d.EventID == "" || !strings.HasPrefix(d.ID, d.EventID) || d.Check != "c" || d.Entity != "e" {
			b.t.Errorf("trace %+v", d)
		}
	}
	return list
}

func TestTracesOfWhatIsNotDelivered(t *testing.T) {
	b := newBench(t)
	f := func(ev *resource.Event, flags eventlog.Flags, want ...string) {
		t.Helper()
		b.send(ev, flags)
		if got := b.traces(); !slices.Equal(got, want) {
			t.Errorf("traced %q, want %q", got, want)
		}
	}
	f(event(0), 0)
	f(event(2), 0, "no_handler: the event names no handler and no pipeline")
	f(event(2, "a"), eventlog.FlagHandlers, "no_handler: there were no handlers in its namespace")
	b.handler("quiet", func(h *resource.Handler) { h.Filters = []string{"is_incident", "not_silenced"} })
	f(event(2, "a", "b"), eventlog.FlagHandlers, "no_handler: no handler was defined of those that the event names: a, b")
	silenced := event(2, "quiet")
	silenced.Check.Silenced = []string{"entity:e:*"}
	f(silenced, eventlog.FlagHandlers|eventlog.FlagSilenced, "silenced: it is silenced by entity:e:*, and no handler in its namespace takes silenced events")
	if saw := b.traced[0].Steps[0].Saw; saw[0] != (trace.Value{Name: "event.check.silenced", Value: "[entity:e:*]"}) {
		t.Errorf("saw %v", saw)
	}
	b.handler("all", nil)
	f(silenced, eventlog.FlagHandlers|eventlog.FlagSilenced, "quiet silenced: it is silenced by entity:e:*")
	b.handler("metrics", func(h *resource.Handler) { h.Filters = []string{"has_metrics"} })
	f(event(2, "all", "metrics"), eventlog.FlagHandlers, "metrics filtered: filter has_metrics denies it")
	f(event(0, "all", "quiet"), eventlog.FlagHandlers) // a resolution, which both take
	f(event(0, "all", "quiet"), eventlog.FlagHandlers) // an OK that is no resolution is not traced
	b.handler("lost", func(h *resource.Handler) { h.Filters = []string{"no_such"} })
	b.handler("tired", func(h *resource.Handler) { h.Filters = []string{"fatigue_check"} })
	f(event(1, "lost", "tired"), eventlog.FlagHandlers, `lost failed: there is no filter "no_such"`)
	f(event(1, "tired"), eventlog.FlagHandlers, "tired filtered: filter fatigue_check denies it")
	if saw := b.traced[0].Steps[0].Saw; saw[0] != (trace.Value{Name: "event.check.occurrences", Value: "2"}) {
		t.Errorf("saw %v", saw)
	}
	f(through(1, []string{"p"}), eventlog.FlagHandlers, "failed: there is no such pipeline")
}

// TestTakenNames: users define filters with the names of built-in ones.
func TestTakenNames(t *testing.T) {
	b := newBench(t)
	b.handler("tired", func(h *resource.Handler) { h.Filters = []string{"fatigue_check"} })
	b.handler("listed", func(h *resource.Handler) { h.Filters = []string{"allow_list"} })
	send := func(want ...string) {
		t.Helper()
		ev := event(1, "tired", "listed")
		ev.Check.Metadata.Annotations = map[string]string{"allow_list/handlers": "tired"}
		if got := b.send(ev, eventlog.FlagHandlers); !slices.Equal(got, want) {
			t.Errorf("delivered to %v, want %v", got, want)
		}
	}
	send("listed", "tired") // the test's check has no annotations
	send("listed")
	b.filter("fatigue_check", "allow", "event.check.occurrences > 2")
	b.filter("allow_list", "deny", "true")
	send("tired")
	check(t, config.Delete(t.Context(), b.config, config.Filters, "default", "fatigue_check"))
	send()
}

func TestResolutionsThatSilencesLetThrough(t *testing.T) {
	b := newBench(t)
	b.handler("quiet", func(h *resource.Handler) { h.Filters = []string{"is_incident", "not_silenced"} })
	put := func(name string, pass bool) {
		check(t, config.Put(t.Context(), b.config, config.Silences,
			&resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, PassResolve: pass}))
	}
	send := func(status uint32, want ...string) {
		t.Helper()
		ev := event(status, "quiet")
		ev.Check.Silenced = []string{"one", "two"}
		if got := b.send(ev, eventlog.FlagHandlers|eventlog.FlagSilenced); !slices.Equal(got, want) {
			t.Errorf("status %d: delivered to %v, want %v", status, got, want)
		}
	}
	put("one", true)
	put("two", false)
	send(2)
	send(0)
	put("two", true)
	send(2)
	send(0, "quiet")
	send(0)
}

func TestDecisions(t *testing.T) {
	b := newBench(t)
	b.filter("second", "allow", "event.check.occurrences == 2", "event.check.status == 1")
	b.handler("a", func(h *resource.Handler) {
		h.Filters = []string{"is_incident", "second", "allow_list"}
		h.Group = &resource.HandlerGroup{By: []string{"check.name", "entity.labels.rack"}}
	})
	check(t, config.Put(t.Context(), b.config, config.Entities, &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "e", Labels: map[string]string{"rack": "7"}}, EntityClass: "agent",
	}))
	var inhibitedBy []string
	workflows := b.newWorkflows(workflow.Options{
		Expressions: testpool.Pool(t),
		Inhibited:   func(context.Context, *resource.Event) ([]string, bool) { return inhibitedBy, inhibitedBy != nil },
	})
	decide := func() workflow.Decision {
		t.Helper()
		if len(b.routed) != 1 {
			t.Fatalf("routed %d", len(b.routed))
		}
		ev := &resource.Event{}
		check(t, ev.UnmarshalProto(b.routed[0].Event))
		return workflows.Decide(t.Context(), b.routed[0], ev)
	}
	b.send(event(1, "a"), eventlog.FlagHandlers)
	if d := decide(); d.Verdict != trace.Filtered || d.Reason != "filter second denies it" || len(d.Steps) != 2 ||
		d.Steps[1].Expression != "event.check.occurrences == 2" || d.Steps[1].Verdict != trace.Deny || d.Steps[1].Saw[0].Value != "1" {
		t.Errorf("first: %+v", d)
	}
	b.send(event(1, "a"), eventlog.FlagHandlers)
	d := decide()
	if d.Verdict != "" || d.GroupKey != "check.name=c, entity.labels.rack=7" || len(d.Steps) != 4 ||
		d.Steps[0].Saw[0].Value != "true" || d.Steps[3].Name != "allow_list" {
		t.Errorf("second: %+v", d)
	}
	if dl := b.routed[0]; dl.Status != 1 || !dl.Incident || dl.Resolution || dl.Pipeline != "" {
		t.Errorf("delivery %+v", dl)
	}
	inhibitedBy = []string{"router/ping", "power/ups"}
	if d := decide(); d.Verdict != trace.Inhibited || !strings.Contains(d.Reason, "router/ping depends on power/ups") ||
		d.Steps[len(d.Steps)-1].Kind != trace.StepInhibit {
		t.Errorf("inhibited: %+v", d)
	}
	inhibitedBy = nil
	check(t, config.Delete(t.Context(), b.config, config.Filters, "default", "second"))
	if d := decide(); d.Verdict != trace.Failed || !strings.Contains(d.Reason, "no filter") {
		t.Errorf("without its filter: %+v", d)
	}
	check(t, config.Delete(t.Context(), b.config, config.Handlers, "default", "a"))
	if d := decide(); d.Verdict != trace.Dropped {
		t.Errorf("without its handler: %+v", d)
	}
}

func (b *bench) mutator(name string, change func(*resource.Mutator)) {
	b.t.Helper()
	m := &resource.Mutator{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "pipe"}
	change(m)
	check(b.t, m.Validate())
	check(b.t, config.Put(b.t.Context(), b.config, config.Mutators, m))
}

func TestMutators(t *testing.T) {
	b := newBench(t)
	t.Setenv("LAPWING_SECRET", "x")
	bin := t.TempDir()
	check(t, os.WriteFile(filepath.Join(bin, "from-asset"), []byte("#!/bin/sh\necho from asset"), 0o700))
	check(t, os.WriteFile(filepath.Join(bin, "twice.js"), []byte("function twice(x) { return x + x }"), 0o600))
	workflows := b.newWorkflows(workflow.Options{
		Expressions: testpool.Pool(t),
		Assets: func(_ context.Context, namespace string, names []string) (*workflow.AssetSet, error) {
			if namespace != "default" || names[0] != "tool" {
				return nil, errors.New("there is no such asset")
			}
			return &workflow.AssetSet{Env: []string{"PATH=" + bin}, Scripts: []string{filepath.Join(bin, "twice.js")}}, nil
		},
	})
	f := func(name, want string, change func(*resource.Mutator)) {
		t.Helper()
		b.mutator("m", change)
		b.handler("h", func(h *resource.Handler) { h.Mutator = "m" })
		b.send(event(2, "h"), eventlog.FlagHandlers)
		ev := &resource.Event{}
		check(t, ev.UnmarshalProto(b.routed[0].Event))
		data, steps, err := workflows.Shape(t.Context(), b.routed[0], ev)
		got := string(data)
		if err != nil {
			got = "error: " + err.Error()
			if steps[0].Error != err.Error() || steps[0].Verdict != trace.Error {
				t.Errorf("%s: steps %+v", name, steps)
			}
		}
		if !strings.Contains(got, want) || want == "" && got != "" || len(steps) != 1 || steps[0].Name != "m" {
			t.Errorf("%s: %.300q, want %q; steps %+v", name, got, want, steps)
		}
	}
	pipe := func(command string, more ...func(*resource.Mutator)) func(*resource.Mutator) {
		return func(m *resource.Mutator) {
			m.Command = command
			for _, f := range more {
				f(m)
			}
		}
	}
	script := func(eval string) func(*resource.Mutator) {
		return func(m *resource.Mutator) { m.Type, m.Eval = "javascript", eval }
	}
	f("stdin", `"status":2`, pipe("cat"))
	f("both streams", "one\ntwo\n", pipe("echo one; echo two >&2"))
	f("nothing", "", pipe("true"))
	f("environment", "b-", pipe("printf %s $A-$LAPWING_SECRET", func(m *resource.Mutator) { m.EnvVars = []string{"A=b"} }))
	f("status", "error: mutate with m: its command ended with status 3: no good", pipe("echo no good; exit 3"))
	f("timeout", "error: mutate with m: its command was killed after 1s", pipe("sleep 60", func(m *resource.Mutator) { m.Timeout = 1 }))
	f("flood", "error: mutate with m: its command wrote more than", pipe("head -c 17000000 /dev/zero"))
	f("secrets", "error: mutate with m: it wants secrets",
		pipe("cat", func(m *resource.Mutator) { m.Secrets = []resource.Secret{{Name: "A", Secret: "a"}} }))
	f("assets", "from asset", pipe("from-asset", func(m *resource.Mutator) { m.RuntimeAssets = []string{"tool"} }))
	f("no such asset", "there anyway", pipe("echo there anyway", func(m *resource.Mutator) { m.RuntimeAssets = []string{"none"} }))
	f("script", "outc", script(`return event.check.output + event.check.name`))
	f("script that changes", `"output":"other"`, script(`event.check.output = "other"`))
	f("script that throws", "error: mutate with m: ", script(`throw "no"`))
	f("script with assets", "outout", func(m *resource.Mutator) {
		script(`return twice(event.check.output)`)(m)
		m.RuntimeAssets = []string{"tool"}
	})
	// The output of a failing mutator is stored and logged.
	secret := func(m *resource.Mutator) { m.EnvVars = []string{"TOKEN=hush-token", "DB=pg://u:hush-pass@db/x"} }
	for name, m := range map[string]func(*resource.Mutator){
		"command": pipe("echo failed with $TOKEN; env; exit 1", secret),
		"cut":     pipe("head -c 1005 /dev/zero | tr '\\0' x; echo failed with $TOKEN $DB; exit 1", secret),
		"cut where no more is read": pipe("printf 'failed with %s' $LONG_KEY; head -c 180 /dev/zero | tr '\\0' x; echo "+
			"$LONG_KEY; exit 1", func(m *resource.Mutator) {
			m.EnvVars = []string{"LONG_KEY=" + strings.Repeat("hush-token", 790)} // 12 + 7,900 + 180 bytes, and 100 of it
		}),
		"timeout": pipe("echo failed with $TOKEN $DB; sleep 60", secret, func(m *resource.Mutator) { m.Timeout = 1 }),
		"script": func(m *resource.Mutator) {
			script(`throw "failed with " + TOKEN`)(m)
			secret(m)
		},
	} {
		b.mutator("m", m)
		b.handler("h", func(h *resource.Handler) { h.Mutator = "m" })
		b.send(event(2, "h"), eventlog.FlagHandlers)
		ev := &resource.Event{}
		check(t, ev.UnmarshalProto(b.routed[0].Event))
		_, steps, err := workflows.Shape(t.Context(), b.routed[0], ev)
		if err == nil || !strings.Contains(err.Error(), "failed with") || strings.Contains(err.Error()+fmt.Sprint(steps), "hush") {
			t.Errorf("%s: %v; steps %+v", name, err, steps)
		}
	}
	// A mutator's change reaches its own handler only.
	b.mutator("change", script(`event.check.output = "changed"; event.check.status = 0`))
	b.handler("first", func(h *resource.Handler) { h.Mutator = "change" })
	b.handler("second", nil)
	b.send(event(2, "first", "second"), eventlog.FlagHandlers)
	first, second := string(b.deliveries[0].Data), string(b.deliveries[1].Data)
	if !strings.Contains(first, `"changed"`) || !strings.Contains(second, `"out"`) || !strings.Contains(second, `"status":2`) {
		t.Errorf("first gets %s, second %s", first, second)
	}
}

func TestFallback(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c"} {
		b.handler(name, nil)
	}
	b.pipeline("one", "a: is_incident", "b")
	b.pipeline("lost", "nobody")
	b.pipeline("two", "c: is_incident", "a: has_metrics")
	f := &resource.FallbackPipeline{Metadata: resource.ObjectMeta{Namespace: "default", Name: "f"}}
	for _, name := range []string{"one", "lost", "two"} {
		f.Pipelines = append(f.Pipelines, reference("Pipeline", name))
	}
	check(t, f.Validate())
	check(t, config.Put(t.Context(), b.config, config.FallbackPipelines, f))
	def := &resource.CheckConfig{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "c"}, Command: "true", Interval: 1,
		Subscriptions: []string{"s"}, FallbackPipeline: reference("FallbackPipeline", "f"),
	}
	check(t, def.Validate())
	check(t, config.Put(t.Context(), b.config, config.Checks, def))
	if got := b.send(event(2), 0); !slices.Equal(got, []string{"a", "b"}) { // the event names no handler
		t.Fatalf("delivered to %v", got)
	}
	ev := &resource.Event{}
	check(t, ev.UnmarshalProto(b.routed[0].Event))
	next := b.workflows.Fallback(b.routed[0], ev)
	if len(next) != 1 || next[0].Handler != "c" || next[0].Pipeline != "two" || next[0].Workflow != "w0" ||
		next[0].ID != "0-1-1/two/w0/c" || len(next[0].Event) == 0 {
		t.Fatalf("fallback %+v", next)
	}
	if more := b.workflows.Fallback(next[0], ev); len(more) != 0 {
		t.Errorf("after the last: %+v", more)
	}
	if got := b.workflows.Decide(t.Context(), next[0], ev); got.Verdict != "" {
		t.Errorf("the fallback is not delivered: %+v", got)
	}
	plain := *b.routed[0]
	plain.Pipeline = ""
	if more := b.workflows.Fallback(&plain, ev); len(more) != 0 {
		t.Errorf("of a handler: %+v", more)
	}
}

func TestSimulate(t *testing.T) {
	b := newBench(t)
	b.handler("a", func(h *resource.Handler) { h.Filters = []string{"critical"} })
	b.filter("critical", "allow", "event.check.status == 2")
	b.pipeline("p", "a: critical | out")
	b.mutator("out", func(m *resource.Mutator) { m.Command = "echo ran" })
	ev := event(1, "a")
	ev.Timestamp = 1700000000
	ev.Check.Metadata = resource.ObjectMeta{Namespace: "default", Name: "c"}
	ev.Entity = &resource.Entity{Metadata: resource.ObjectMeta{Namespace: "default", Name: "e"}}
	f := func(overlay workflow.Overlay, ev *resource.Event, want ...string) []trace.Delivery {
		t.Helper()
		list := b.workflows.Simulate(t.Context(), overlay, ev, "default")
		var got []string
		for _, d := range list {
			got = append(got, strings.TrimPrefix(d.ID, "simulation/")+" "+string(d.Verdict))
			if d.Entity != "e" || d.Check != "c" || d.Reason == "" {
				t.Errorf("%+v", d)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		return list
	}
	f(workflow.Overlay{}, ev, "a filtered")
	looser := &resource.EventFilter{
		Metadata: resource.ObjectMeta{Name: "critical"}, Action: "allow",
		Expressions: []string{"event.check.status > 0"},
	}
	list := f(workflow.Overlay{Filters: []*resource.EventFilter{looser}}, ev, "a delivered")
	if saw := list[0].Steps[0].Saw[0]; saw.Name != "event.check.status" || saw.Value != "1" {
		t.Errorf("saw %v", saw)
	}
	if last := list[0].Steps[len(list[0].Steps)-1]; last.Name != "json" || !strings.Contains(last.Saw[1].Value, `"status":1`) {
		t.Errorf("last step %+v", last)
	}
	draft := &resource.Pipeline{Metadata: resource.ObjectMeta{Name: "draft"}, Workflows: []resource.PipelineWorkflow{
		{Name: "w", Mutator: reference("Mutator", "out"), Handler: reference("Handler", "new")},
	}}
	overlay := workflow.Overlay{
		Pipelines: []*resource.Pipeline{draft},
		Handlers:  []*resource.Handler{{Metadata: resource.ObjectMeta{Name: "new"}, Type: "pipe", Command: "true"}},
	}
	list = f(overlay, ev, "a filtered", "draft/w/new delivered")
	if r := list[1].Reason; !strings.Contains(r, "was not run") || !strings.Contains(r, "does not name this draft") {
		t.Errorf("reason %q", r)
	}
	overlay.RunCommands = true
	list = f(overlay, ev, "a filtered", "draft/w/new delivered")
	if last := list[1].Steps[len(list[1].Steps)-1]; last.Name != "out" || last.Saw[1].Value != "ran\n" {
		t.Errorf("last step %+v", last)
	}
	// At another time: hours, a silence that is over by then, and the time that expressions see.
	b.handler("night", func(h *resource.Handler) { h.Filters = []string{"not_silenced", "late"} })
	late := &resource.EventFilter{
		Metadata: resource.ObjectMeta{Name: "late"}, Action: "allow",
		Expressions: []string{"hour(event.timestamp) == 23", "seconds_since(event.timestamp) == 0"},
		When:        &resource.TimeWindowWhen{Days: resource.TimeWindowDays{All: []resource.TimeWindowTimeRange{{Begin: "11:00PM", End: "11:59PM"}}}},
	}
	check(t, config.Put(t.Context(), b.config, config.Silences, &resource.Silenced{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "*:c"}, Check: "c", ExpireAt: time.Date(2030, 1, 7, 22, 0, 0, 0, time.UTC).Unix(),
	}))
	silenced := *ev
	silenced.Check = &resource.Check{Metadata: ev.Check.Metadata, Status: 2, Silenced: []string{"*:c"}, Handlers: []string{"night"}}
	for hour, want := range map[int]string{21: "night silenced", 22: "night filtered", 23: "night delivered"} {
		at := time.Date(2030, 1, 7, hour, 30, 0, 0, time.UTC)
		f(workflow.Overlay{Filters: []*resource.EventFilter{late}, At: at}, &silenced, want)
	}
	if silenced.Timestamp != 1700000000 || len(silenced.Check.Silenced) != 1 {
		t.Errorf("the simulation has changed its event: %+v", silenced)
	}
	nothing := *ev
	nothing.Check = &resource.Check{Metadata: ev.Check.Metadata, Status: 1}
	if list := b.workflows.Simulate(t.Context(), workflow.Overlay{}, &nothing, "default"); len(list) != 1 ||
		list[0].Verdict != trace.NoHandler {
		t.Errorf("%+v", list)
	}
	if len(b.routed) != 0 || len(b.traced) != 0 {
		t.Error("a simulation left something behind")
	}
}

// TestSimulateEscalation: the reason says when the first step is taken and whom it notifies.
func TestSimulateEscalation(t *testing.T) {
	b := newBench(t)
	b.handler("chat", nil)
	workflows := b.newWorkflows(workflow.Options{
		Expressions: testpool.Pool(t), OnCall: oncall.New(b.config.Snapshot, calendar.New(nil)),
	})
	// One of the calendars is active at any time.
	for name, dates := range map[string]string{"spring": "01-01/06-30", "autumn": "07-01/12-31"} {
		check(t, config.Put(t.Context(), b.config, config.Calendars, &resource.Calendar{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Windows: []resource.CalendarWindow{{Dates: []string{dates}}},
		}))
	}
	ev := event(1, "page")
	ev.Check.Metadata = resource.ObjectMeta{Namespace: "default", Name: "c"}
	ev.Entity = &resource.Entity{Metadata: resource.ObjectMeta{Namespace: "default", Name: "e"}}
	quiet := []resource.EscalationQuiet{{Severities: []string{"warning"}, Calendars: []string{"spring", "autumn"}}}
	for _, tc := range []struct {
		escalation resource.HandlerEscalation
		to, want   string
		at         time.Time
	}{
		{resource.HandlerEscalation{}, "chat", "^it begins an escalation, and step 1 notifies chat now$", time.Time{}},
		{resource.HandlerEscalation{}, "nothing", "^it begins an escalation, and step 1 finds no one to notify now$", time.Time{}},
		{resource.HandlerEscalation{Steps: []resource.EscalationStep{{After: 600}}}, "chat",
			"^it begins an escalation, and step 1 notifies chat after 10m0s$", time.Time{}},
		{resource.HandlerEscalation{Quiet: quiet}, "chat", "^it begins an escalation, and step 1 notifies chat when the quiet time is over: " +
			"it is quiet for severity warning until 20[0-9-]+T00:00:00Z: calendar (spring|autumn)$", time.Time{}},
		{resource.HandlerEscalation{Quiet: quiet}, "chat", "^it begins an escalation, and step 1 notifies chat when the quiet time is over: " +
			"it is quiet for severity warning until 2031-01-01T00:00:00Z: calendar autumn$", time.Date(2030, 9, 1, 0, 0, 0, 0, time.UTC)},
	} {
		b.handler("page", func(h *resource.Handler) {
			h.Type, h.Escalation = resource.EscalationType, &tc.escalation
			if tc.escalation.Steps == nil {
				tc.escalation.Steps = make([]resource.EscalationStep, 1)
			}
			tc.escalation.Steps[0].Notify = []resource.EscalationTarget{{Handler: tc.to}}
		})
		list := workflows.Simulate(t.Context(), workflow.Overlay{At: tc.at}, ev, "default")
		if len(list) != 1 || list[0].Verdict != trace.Held || !regexp.MustCompile(tc.want).MatchString(list[0].Reason) {
			t.Errorf("%+v, want the reason %s", list, tc.want)
		}
	}
}

// TestUnansweredFilterIsTraced: no worker runs, so a filter that would deny gives no answer. The event passes, as with
// Sensu, and the trace has the reason.
func TestUnansweredFilterIsTraced(t *testing.T) {
	b := newBench(t)
	b.filter("never", "deny", "event.check.status == 2", "event.check.status == 1")
	b.handler("h", func(h *resource.Handler) { h.Filters = []string{"never"} })
	pool, err := filter.NewPool(filter.PoolOptions{}) // not started
	check(t, err)
	workflows := b.newWorkflows(workflow.Options{Expressions: pool})
	d := workflows.Decide(t.Context(), &delivery.Delivery{
		Header: delivery.Header{Namespace: "default", Handler: "h", Incident: true},
	}, event(2, "h"))
	if d.Verdict != "" || len(d.Steps) != 2 {
		t.Fatalf("%+v", d)
	}
	for _, step := range d.Steps {
		if step.Verdict != trace.Error || step.Name != "never" || step.Expression == "" || !strings.Contains(step.Error, "no workers") {
			t.Errorf("%+v", step)
		}
	}
}

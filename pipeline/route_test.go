package pipeline_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func (b *bench) filter(name, action string, expressions ...string) {
	b.t.Helper()
	check(b.t, config.Put(b.t.Context(), b.config, config.Filters, &resource.EventFilter{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Action: action, Expressions: expressions,
	}))
}

// pipeline defines a pipeline with workflows "handler: filter filter | mutator", named w0, w1 and so on.
func (b *bench) pipeline(name string, workflows ...string) {
	b.t.Helper()
	p := &resource.Pipeline{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}}
	for i, text := range workflows {
		ways, mutator, _ := strings.Cut(text, "|")
		to, filters, _ := strings.Cut(ways, ":")
		w := resource.PipelineWorkflow{Name: "w" + string(rune('0'+i)), Handler: reference("Handler", strings.TrimSpace(to))}
		for _, f := range strings.Fields(filters) {
			w.Filters = append(w.Filters, reference("EventFilter", f))
		}
		if m := strings.TrimSpace(mutator); m != "" {
			w.Mutator = reference("Mutator", m)
		}
		p.Workflows = append(p.Workflows, w)
	}
	check(b.t, p.Validate())
	check(b.t, config.Put(b.t.Context(), b.config, config.Pipelines, p))
}

func reference(kind, name string) *resource.ResourceReference {
	return &resource.ResourceReference{APIVersion: "core/v2", Type: kind, Name: name}
}

// through returns an event that names pipelines and handlers.
func through(status uint32, pipelines []string, handlers ...string) *resource.Event {
	ev := event(status, handlers...)
	for _, name := range pipelines {
		ev.Pipelines = append(ev.Pipelines, *reference("Pipeline", name))
	}
	return ev
}

func TestDefinedFilters(t *testing.T) {
	b := newBench(t)
	b.filter("critical", "allow", "event.check.status == 2")
	b.filter("second", "allow", "event.check.occurrences == 2", "event.entity.name == 'e'")
	b.filter("web", "deny", "event.check.name == 'c'")
	b.filter("broken", "allow", "event.no.such.thing")
	h := func(name string, filters ...string) {
		b.handler(name, func(h *resource.Handler) { h.Filters = filters })
	}
	h("critical", "is_incident", "critical")
	h("second", "second")
	h("web", "web")
	h("broken", "broken", "is_incident")
	send := func(status uint32, want ...string) {
		t.Helper()
		if got := b.send(event(status, "critical", "second", "web", "broken"), eventlog.FlagHandlers); !slices.Equal(got, want) {
			t.Errorf("status %d: %v, want %v", status, got, want)
		}
	}
	send(2, "broken", "critical")
	send(2, "broken", "critical", "second")
	send(1, "broken")
	send(1, "broken", "second")
	send(0, "broken")
	send(0, "second")
	// A changed definition counts at once, and a deleted filter denies.
	b.filter("critical", "allow", "event.check.status == 1")
	send(1, "broken", "critical")
	check(t, config.Delete(t.Context(), b.config, config.Filters, "default", "critical"))
	send(1, "broken", "second")
	// An event without a check must do no harm.
	onlyMetrics := &resource.Event{Metrics: &resource.Metrics{Handlers: []string{"web", "second", "broken"}}}
	if got := b.send(onlyMetrics, eventlog.FlagHandlers|eventlog.FlagMetrics); !slices.Equal(got, []string{"second", "web"}) {
		t.Errorf("metrics only: %v", got)
	}
}

func TestPipelines(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c"} {
		b.handler(name, nil)
	}
	b.handler("own", func(h *resource.Handler) { h.Filters, h.Mutator = []string{"has_metrics"}, "no_such_mutator" })
	b.handler("set", func(h *resource.Handler) { h.Type, h.Handlers = "set", []string{"a"} })
	b.filter("critical", "allow", "event.check.status == 2")
	b.pipeline("empty")
	b.pipeline("plain", "b", "a")
	b.pipeline("filtered", "a: is_incident critical", "b: is_incident", "c: critical not_silenced")
	b.pipeline("wrong", "a: no_such_filter", "nobody", "set", "b | no_such_mutator", "c: is_incident")
	b.pipeline("own", "own")
	b.pipeline("twice", "a", "b", "a | only_check_output")
	for _, tc := range []struct {
		name  string
		ev    *resource.Event
		flags eventlog.Flags
		want  string
	}{
		{"in the order of the workflows", through(2, []string{"plain"}), 0, "b a"},
		{"none passes", through(0, []string{"filtered"}), 0, "b"}, // the resolution
		{"OK after OK", through(0, []string{"filtered"}), 0, ""},
		{"critical", through(2, []string{"filtered"}), 0, "a b c"},
		{"silenced", through(2, []string{"filtered"}), eventlog.FlagSilenced, "a b"},
		{"warning", through(1, []string{"filtered"}), 0, "b"},
		{"what is wrong does not stop the next", through(1, []string{"nothing", "wrong", "empty"}), 0, "c"},
		{"the handler's own filters and mutator do not count", through(1, []string{"own"}), 0, "own"},
		{"handlers come after pipelines", through(1, []string{"plain"}, "c", "a"), 0, "b a a c"},
		{"several", through(2, []string{"filtered", "plain"}), 0, "a b c b a"},
		{"one handler twice", through(1, []string{"twice"}), 0, "a b a"},
		{
			"only the event's count",
			&resource.Event{Check: &resource.Check{Status: 1, Pipelines: []resource.ResourceReference{*reference("Pipeline", "plain")}}},
			0, "",
		},
	} {
		got := strings.Join(b.send(tc.ev, tc.flags|eventlog.FlagHandlers), " ")
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		ids, places := map[string]bool{}, map[string]int{}
		last := math.MinInt
		for _, d := range b.deliveries {
			if before, twice := places[d.Handler]; ids[d.ID] || d.Sub < last || twice && before == d.Sub {
				t.Errorf("%s: delivery %s at %d after %d", tc.name, d.ID, d.Sub, last)
			}
			ids[d.ID], places[d.Handler], last = true, d.Sub, d.Sub
		}
	}
	b.send(through(2, []string{"twice"}), eventlog.FlagHandlers)
	if first, third := b.deliveries[0], b.deliveries[2]; !strings.HasSuffix(first.ID, "/twice/w0/a") ||
		string(third.Data) != "out" || string(first.Data) == "out" {
		t.Errorf("deliveries %s %q, %s %q", first.ID, first.Data, third.ID, third.Data)
	}
}

// TestGateKnowsPipelines: the gate is open for events that a workflow of a pipeline takes.
func TestGateKnowsPipelines(t *testing.T) {
	b := newBench(t)
	b.handler("a", func(h *resource.Handler) { h.Filters = []string{"has_metrics"} })
	b.pipeline("p", "a: is_incident")
	if got := b.send(through(1, []string{"p"}), eventlog.FlagHandlers); len(got) != 1 {
		t.Errorf("dispatched to %v", got)
	}
	b.verdicts("0", "0", "0", "1")
	b.send(through(0, []string{"p"}), eventlog.FlagHandlers)
	b.send(through(0, []string{"p"}), eventlog.FlagHandlers)
	b.verdicts("0", "1", "0", "2")
}

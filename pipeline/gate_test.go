package pipeline_test

import (
	"bytes"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// verdicts compares the count of each verdict.
func (b *bench) verdicts(unhandled, filtered, failed, dispatched string) {
	b.t.Helper()
	want := `
# HELP lapwing_pipeline_events_total Events routed: without handlers, with deliveries, with none because of filters, or with none because of errors.
# TYPE lapwing_pipeline_events_total counter
lapwing_pipeline_events_total{verdict="unhandled"} ` + unhandled + `
lapwing_pipeline_events_total{verdict="filtered"} ` + filtered + `
lapwing_pipeline_events_total{verdict="failed"} ` + failed + `
lapwing_pipeline_events_total{verdict="dispatched"} ` + dispatched + `
`
	if err := testutil.GatherAndCompare(b.registry, strings.NewReader(want), "lapwing_pipeline_events_total"); err != nil {
		b.t.Error(err)
	}
}

func TestVerdicts(t *testing.T) {
	b := newBench(t)
	send := func(ev *resource.Event, want ...string) {
		t.Helper()
		if got := b.send(ev, eventlog.FlagHandlers); !slices.Equal(got, want) {
			t.Errorf("dispatched to %v, want %v", got, want)
		}
	}
	send(event(2, "incident")) // no handler is defined
	b.verdicts("1", "0", "0", "0")
	b.handler("incident", func(h *resource.Handler) { h.Filters = []string{"is_incident"} })
	send(event(0, "incident"), "incident") // the resolution
	send(event(0, "incident"))             // no handler wants this
	send(event(2, "nobody"))
	b.verdicts("2", "1", "0", "1")
	b.handler("all", func(h *resource.Handler) { h.Type, h.Handlers = "set", []string{"incident"} })
	send(event(0, "all"), "incident")
	send(event(0, "all")) // a set passes no event by itself
	b.verdicts("2", "2", "0", "2")
	b.handler("unfiltered", nil)
	send(event(0, "incident", "unfiltered"), "unfiltered")
	send(event(0, "incident"))
	b.verdicts("2", "3", "0", "3")
	b.handler("lost", func(h *resource.Handler) { h.Filters = []string{"is_incident", "no_such_filter"} })
	send(event(0, "lost"))
	send(event(1, "lost"))
	send(event(1, "lost", "incident"), "incident")
	b.verdicts("2", "4", "1", "4")
	check(t, config.Delete(t.Context(), b.config, config.Handlers, "default", "unfiltered"))
	check(t, config.Delete(t.Context(), b.config, config.Handlers, "default", "incident"))
	send(event(1, "incident", "unfiltered"))
	b.verdicts("3", "4", "1", "4")

	want := `
# HELP lapwing_pipeline_filtered_total Deliveries that a filter denied: a built-in one, or one that a user defined; or that are inhibited. Events that no handler of their namespace takes are not among them.
# TYPE lapwing_pipeline_filtered_total counter
lapwing_pipeline_filtered_total{filter="allow_list"} 0
lapwing_pipeline_filtered_total{filter="defined"} 0
lapwing_pipeline_filtered_total{filter="fatigue_check"} 0
lapwing_pipeline_filtered_total{filter="has_metrics"} 0
lapwing_pipeline_filtered_total{filter="inhibited"} 0
lapwing_pipeline_filtered_total{filter="is_incident"} 3
lapwing_pipeline_filtered_total{filter="not_silenced"} 0
`
	if err := testutil.GatherAndCompare(b.registry, strings.NewReader(want), "lapwing_pipeline_filtered_total"); err != nil {
		t.Error(err)
	}
}

// TestGateIsOfTheNamespace: a handler that takes everything, in another namespace, does not open the gate.
func TestGateIsOfTheNamespace(t *testing.T) {
	b := newBench(t)
	b.handler("a", func(h *resource.Handler) { h.Metadata.Namespace = "other" })
	b.handler("a", func(h *resource.Handler) { h.Filters = []string{"is_incident"} })
	router := b.newRouter(pipeline.Options{})
	// These events have no body, so decoding them would panic.
	router.Route(&state.Applied{Namespace: "default", Entity: "e", Check: "c", HasHandlers: true})
	router.Route(&state.Applied{Namespace: "default", Entity: "e", Check: "c", HasHandlers: true, HasMetrics: true, Silenced: true})
	router.Route(&state.Applied{Namespace: "third", Entity: "e", Check: "c", HasHandlers: true, Incident: true})
	a := &state.Applied{Namespace: "default", Entity: "e", Check: "c", HasHandlers: true}
	if list := router.Deliveries(a); len(list) != 0 {
		t.Errorf("dispatches %v", list)
	}
	if n := testing.AllocsPerRun(100, func() { router.Route(a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestComplaintsAreLoggedOnce(t *testing.T) {
	b := newBench(t)
	b.handler("lost", func(h *resource.Handler) { h.Filters = []string{"no_such_filter"} })
	b.handler("odd", func(h *resource.Handler) { h.Mutator = "no_such_mutator" })
	b.handler("output", func(h *resource.Handler) { h.Mutator = "only_check_output" })
	var out bytes.Buffer // only the fold's goroutine writes, and send waits for it
	workflows := b.newWorkflows(workflow.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	router := b.newRouter(pipeline.Options{Workflows: workflows})
	b.onRoute = func(a *state.Applied) {
		for _, d := range router.Deliveries(a) {
			if _, ok := b.work(workflows, d); ok {
				t.Errorf("%s goes out", d.ID)
			}
		}
	}
	f := func(want ...string) {
		t.Helper()
		out.Reset()
		for range 3 {
			b.send(event(1, "lost", "odd"), eventlog.FlagHandlers)
			b.send(&resource.Event{Metrics: &resource.Metrics{Handlers: []string{"output"}}}, eventlog.FlagHandlers|eventlog.FlagMetrics)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if out.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(want) {
			t.Fatalf("logged %q, want %q", lines, want)
		}
		for i, w := range want {
			if !strings.Contains(lines[i], "level=ERROR") || !strings.Contains(lines[i], w) {
				t.Errorf("logged %q, want %q", lines[i], w)
			}
		}
	}
	f("no_such_filter", "no_such_mutator", "the event has no check")
	b.handler("another", func(h *resource.Handler) { h.Filters = []string{"is_incident"} })
	f()
	b.handler("lost", func(h *resource.Handler) { h.Filters = []string{"no_such_filter"}; h.Timeout = 3 })
	f("no_such_filter")
}

func TestPointsThatAreNoNumbers(t *testing.T) {
	b := newBench(t)
	b.handler("all", nil)
	ev := event(2, "all")
	ev.Metrics = &resource.Metrics{
		Points: []resource.MetricPoint{{Name: "a", Value: math.NaN()}, {Name: "b", Value: 1}, {Name: "c", Value: math.Inf(-1)}},
	}
	if got := b.send(ev, eventlog.FlagHandlers|eventlog.FlagMetrics); len(got) != 1 {
		t.Fatalf("dispatched to %v", got)
	}
	var got resource.Event
	check(t, got.UnmarshalJSON(b.deliveries[0].Data))
	if len(got.Metrics.Points) != 1 || got.Metrics.Points[0].Name != "b" || got.Check.Status != 2 {
		t.Errorf("delivered %s", b.deliveries[0].Data)
	}
}

// TestTracesAreCheap measures what an incident without a route costs the fold.
func TestTracesAreCheap(t *testing.T) {
	b := newBench(t)
	router := b.newRouter(pipeline.Options{Trace: func(d *trace.Delivery) {
		if d.ID != "3-12345678901-2" {
			t.Errorf("ID %s", d.ID)
		}
	}})
	a := &state.Applied{
		Partition: 3, Seq: 12345678901, Sub: 2, Namespace: "default", Entity: "e", Check: "c", HasHandlers: true,
		Incident: true,
	}
	if n := testing.AllocsPerRun(100, func() { router.Route(a) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
	if a.ID() != "3-12345678901-2" {
		t.Errorf("ID %s", a.ID())
	}
}

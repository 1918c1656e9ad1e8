package pipeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/delivery"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/fold"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/handler/send"
	"github.com/lapwing-monitoring/lapwing/internal/testpool"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/pipeline"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// bench is a router behind a real log and fold. It collects the deliveries.
type bench struct {
	t        testing.TB
	config   *config.Store
	log      *eventlog.Log
	state    *state.State
	registry *prometheus.Registry

	onRoute func(*state.Applied) // called before the router, unless nil

	workflows *workflow.Workflows
	handlers  *handler.Dispatcher // never started
	router    *pipeline.Router

	mu         sync.Mutex
	routed     []*delivery.Delivery // by the fold
	traced     []*trace.Delivery
	deliveries []delivered // passed by Decide
}

// delivered is a delivery with its handler's input.
type delivered struct {
	*delivery.Delivery
	Data []byte
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, registry: prometheus.NewRegistry()}
	dir := t.TempDir()
	nats, err := broker.New(broker.Options{Dir: dir})
	check(t, err)
	check(t, nats.Start(t.Context()))
	b.config, err = config.New(config.Options{Broker: nats})
	check(t, err)
	check(t, b.config.Start(t.Context()))
	b.log, err = eventlog.New(eventlog.Options{
		Broker: nats, Dir: dir, Origin: "here", Partitions: 1, FlushInterval: time.Millisecond, MinFree: 1,
	})
	check(t, err)
	check(t, b.log.Start(t.Context()))
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Logger: quiet{}})
	check(t, err)
	b.workflows = b.newWorkflows(workflow.Options{Expressions: testpool.Pool(t), Registerer: b.registry})
	sender, err := send.New(send.Options{})
	check(t, err)
	b.handlers, err = handler.New(handler.Options{
		DB: db, Log: b.log, Config: b.config.Snapshot, Workflows: b.workflows, Sender: sender,
		Present: func(_, _, _ string) (*resource.Event, error) { return nil, nil }, OnCall: oncall.New(b.config.Snapshot, calendar.New(nil)),
	})
	check(t, err)
	b.router = b.newRouter(pipeline.Options{Registerer: b.registry, Trace: func(d *trace.Delivery) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.traced = append(b.traced, d)
	}})
	b.state, err = state.New(state.Options{
		Log: b.log, DB: db, Entity: func(ns, name string) (*resource.EntityConfig, bool) {
			return config.Get(b.config.Snapshot(), config.Entities, ns, name)
		},
	})
	check(t, err)
	reading, err := fold.New(fold.Options{Log: b.log, State: b.state, Followers: []fold.Follower{b}})
	check(t, err)
	check(t, reading.Start(t.Context()))
	t.Cleanup(func() {
		check(t, b.handlers.Stop())
		check(t, reading.Stop())
		check(t, b.state.Stop())
		check(t, b.log.Stop())
		check(t, db.Close())
		check(t, b.config.Stop())
		check(t, nats.Stop())
	})
	return b
}

// Name is the follower's name.
func (b *bench) Name() string { return "bench" }

// Follow collects what the router would dispatch.
func (b *bench) Follow(a *state.Applied) {
	if b.onRoute != nil {
		b.onRoute(a)
	}
	routed := b.router.Deliveries(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.routed = append(b.routed, routed...)
}

func (b *bench) newWorkflows(opts workflow.Options) *workflow.Workflows {
	b.t.Helper()
	opts.Config = b.config.Snapshot
	w, err := workflow.New(opts)
	check(b.t, err)
	return w
}

// newRouter returns a router with the bench's workflows, unless the options have others.
func (b *bench) newRouter(opts pipeline.Options) *pipeline.Router {
	b.t.Helper()
	opts.Config = b.config.Snapshot
	if opts.Workflows == nil {
		opts.Workflows = b.workflows
	}
	if opts.Handlers == nil {
		opts.Handlers = b.handlers
	}
	r, err := pipeline.New(opts)
	check(b.t, err)
	return r
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) handler(name string, change func(*resource.Handler)) {
	b.t.Helper()
	h := &resource.Handler{Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Type: "pipe", Command: "true"}
	if change != nil {
		change(h)
	}
	check(b.t, config.Put(b.t.Context(), b.config, config.Handlers, h))
}

type done chan uint64

func (d done) Logged(_ uint64, _ int, seq uint64, err error) {
	if err != nil {
		panic(err)
	}
	d <- seq
}

// send appends an event to the log and returns the handlers of its deliveries, in order.
func (b *bench) send(ev *resource.Event, flags eventlog.Flags) []string {
	b.t.Helper()
	rec := eventlog.Record{Kind: eventlog.KindEvent, Flags: flags, Namespace: "default", Entity: "e"}
	if ev.Check != nil {
		ev.Check.Metadata = resource.ObjectMeta{Namespace: "default", Name: "c"}
		rec.Check, rec.Status, rec.Executed = "c", ev.Check.Status, 1
		for _, name := range ev.Check.Silenced { // as the intake records it
			if s, ok := config.Get(b.config.Snapshot(), config.Silences, "default", name); ok && s.PassResolve {
				rec.Flags |= eventlog.FlagOnResolve
				rec.OnResolve = append(rec.OnResolve, name)
			}
		}
	} else {
		rec.Flags |= eventlog.FlagStateless
	}
	rec.Body = ev.AppendProto(nil)
	b.mu.Lock()
	b.routed, b.traced, b.deliveries = nil, nil, nil
	b.mu.Unlock()
	d := make(done, 1)
	check(b.t, b.log.Append(&rec, d, 0))
	check(b.t, b.state.WaitFolded(b.t.Context(), 0, <-d))
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, d := range b.routed {
		data, ok := b.work(b.workflows, d)
		if ok {
			b.deliveries = append(b.deliveries, delivered{d, data})
			names = append(names, d.Handler)
		}
	}
	return names
}

// work does what a handler's worker does with a delivery before it sends it.
func (b *bench) work(workflows *workflow.Workflows, d *delivery.Delivery) ([]byte, bool) {
	b.t.Helper()
	ev := &resource.Event{}
	check(b.t, ev.UnmarshalProto(d.Event))
	decision := workflows.Decide(b.t.Context(), d, ev)
	if decision.Verdict != "" {
		return nil, false
	}
	data, _, err := workflows.Shape(b.t.Context(), d, ev)
	return data, err == nil
}

func event(status uint32, handlers ...string) *resource.Event {
	return &resource.Event{Check: &resource.Check{Status: status, Handlers: handlers, Output: "out"}}
}

func TestWhichHandlers(t *testing.T) {
	b := newBench(t)
	b.handler("plain", nil)
	b.handler("alpha", nil)
	b.handler("incident", func(h *resource.Handler) { h.Filters = []string{"is_incident"} })
	b.handler("quiet", func(h *resource.Handler) { h.Filters = []string{"is_incident", "not_silenced"} })
	b.handler("metrics", func(h *resource.Handler) { h.Filters = []string{"has_metrics"} })
	b.handler("lost", func(h *resource.Handler) { h.Filters = []string{"no_such_filter"} })
	b.handler("odd", func(h *resource.Handler) { h.Mutator = "no_such_mutator" })
	b.handler("inner", func(h *resource.Handler) { h.Type, h.Handlers = "set", []string{"plain", "outer", "deep"} })
	b.handler("deep", func(h *resource.Handler) { h.Type, h.Handlers = "set", []string{"alpha", "nobody"} })
	b.handler("outer", func(h *resource.Handler) { h.Type, h.Handlers = "set", []string{"inner", "incident"} })
	withMetrics := event(0, "metrics", "plain")
	withMetrics.Metrics = &resource.Metrics{Handlers: []string{"alpha", "plain"}}
	for _, tc := range []struct {
		name  string
		ev    *resource.Event
		flags eventlog.Flags
		want  []string
	}{
		{"none", event(0), 0, nil},
		{"not defined", event(2, "nobody", "keepalive"), eventlog.FlagHandlers, nil},
		{"in the order of names, each once", event(2, "plain", "alpha", "plain"), eventlog.FlagHandlers, []string{"alpha", "plain"}},
		{"incident", event(2, "incident"), eventlog.FlagHandlers, []string{"incident"}},
		{"its resolution", event(0, "incident"), eventlog.FlagHandlers, []string{"incident"}},
		{"OK after OK", event(0, "incident"), eventlog.FlagHandlers, nil},
		{"silenced", event(1, "quiet", "incident"), eventlog.FlagHandlers | eventlog.FlagSilenced, []string{"incident"}},
		{"sets, nested and in a circle", event(1, "outer"), eventlog.FlagHandlers, []string{"alpha", "incident", "plain"}},
		{"one that is wrong does not stop the next", event(1, "lost", "odd", "plain"), eventlog.FlagHandlers, []string{"plain"}},
		{"metrics", withMetrics, eventlog.FlagHandlers | eventlog.FlagMetrics, []string{"alpha", "metrics", "plain"}},
		{"no metrics", event(0, "metrics"), eventlog.FlagHandlers, nil},
		{
			"metrics only",
			&resource.Event{Metrics: &resource.Metrics{Handlers: []string{"metrics", "incident"}}},
			eventlog.FlagMetrics, []string{"metrics"},
		},
	} {
		if got := b.send(tc.ev, tc.flags); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	want := `
# HELP lapwing_pipeline_errors_total Deliveries that failed before their handler, by step.
# TYPE lapwing_pipeline_errors_total counter
lapwing_pipeline_errors_total{step="decode"} 0
lapwing_pipeline_errors_total{step="dispatch"} 0
lapwing_pipeline_errors_total{step="filter"} 1
lapwing_pipeline_errors_total{step="mutate"} 1
lapwing_pipeline_errors_total{step="resolve"} 0
`
	if err := testutil.GatherAndCompare(b.registry, strings.NewReader(want), "lapwing_pipeline_errors_total"); err != nil {
		t.Error(err)
	}
}

func TestWhatHandlersGet(t *testing.T) {
	b := newBench(t)
	b.handler("all", nil)
	b.handler("also", func(h *resource.Handler) { h.Mutator = "json" })
	b.handler("output", func(h *resource.Handler) { h.Mutator = "only_check_output" })
	check(t, config.Put(t.Context(), b.config, config.Entities, &resource.EntityConfig{
		Metadata: resource.ObjectMeta{
			Namespace: "default", Name: "e", Labels: map[string]string{"rack": "7", "password": "secret"},
		}, EntityClass: "agent",
	}))
	b.send(event(0), 0)
	if got := b.send(event(2, "all", "also", "output"), eventlog.FlagHandlers); len(got) != 3 {
		t.Fatalf("dispatched %v", got)
	}
	all, also, output := b.deliveries[0], b.deliveries[1], b.deliveries[2]
	if string(output.Data) != "out" {
		t.Errorf("only_check_output gives %q", output.Data)
	}
	if !bytes.Equal(all.Data, also.Data) || &all.Event[0] != &also.Event[0] {
		t.Error("the event was encoded twice")
	}
	if all.ID != "0-2-1/all" || all.Entity != "e" || all.Check != "c" || all.Seq != 2 {
		t.Errorf("delivery %+v", all)
	}
	var ev struct {
		Check  resource.Check
		Entity struct{ Metadata resource.ObjectMeta }
	}
	check(t, json.Unmarshal(all.Data, &ev))
	if ev.Check.Occurrences != 1 || ev.Check.State != "failing" || len(ev.Check.History) != 2 {
		t.Errorf("check %+v", ev.Check)
	}
	if l := ev.Entity.Metadata.Labels; l["rack"] != "7" || l["password"] != "REDACTED" {
		t.Errorf("labels %v", l)
	}
}

// BenchmarkRouteNothing measures the most common event: no handlers, no metrics.
func BenchmarkRouteNothing(b *testing.B) {
	bn := newBench(b)
	router := bn.newRouter(pipeline.Options{})
	a := &state.Applied{Namespace: "default", Entity: "e", Check: "c"}
	b.ReportAllocs()
	for b.Loop() {
		router.Route(a)
	}
}

func TestRouteOfNothingAllocatesNothing(t *testing.T) {
	bn := newBench(t)
	router := bn.newRouter(pipeline.Options{})
	a := &state.Applied{Namespace: "default", Entity: "e", Check: "c"}
	if n := testing.AllocsPerRun(100, func() { router.Route(a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRoute measures an event of usual size that names a handler: once the handler's filters deny it, once it
// becomes a delivery.
func BenchmarkRoute(b *testing.B) {
	bn := newBench(b)
	bn.handler("incident", func(h *resource.Handler) { h.Filters = []string{"is_incident", "not_silenced"} })
	host := resource.EntityState{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: "e"}, SensuAgentVersion: "6.12.0",
		System: resource.System{
			Hostname: "host-0001.example.org", OS: "linux", Platform: "debian", PlatformFamily: "debian", PlatformVersion: "12.5", Arch: "amd64",
			Network: resource.Network{Interfaces: []resource.NetworkInterface{
				{Name: "lo", Addresses: []string{"127.0.0.1/8", "::1/128"}},
				{Name: "eth0", MAC: "00:16:3e:00:00:01", Addresses: []string{"10.1.2.3/24", "fe80::216:3eff:fe00:1/64"}},
			}},
		},
	}
	d := make(done, 1)
	check(b, bn.log.Append(&eventlog.Record{Kind: eventlog.KindEntity, Namespace: "default", Entity: "e", Body: host.AppendProto(nil)}, d, 0))
	check(b, bn.state.WaitFolded(b.Context(), 0, <-d))
	usual := func(status uint32) *resource.Event {
		ev := event(status, "incident")
		ev.ID, ev.Timestamp = resource.NewEventID(), 1700000000
		ev.Check.Command = "check-disk-usage.rb -w 80 -c 90 --ignore-fstype tmpfs"
		ev.Check.Interval, ev.Check.Timeout, ev.Check.Duration = 60, 30, 0.35
		ev.Check.Subscriptions = []string{"linux", "entity:e"}
		ev.Check.ProcessedBy, ev.Check.Issued, ev.Check.Executed = "e", 1700000000, 1700000000
		ev.Check.Output = strings.Repeat("CheckDisk OK: all disks are below the threshold\n", 6)
		return ev
	}
	for range 21 {
		bn.send(usual(0), 0)
	}
	router := bn.newRouter(pipeline.Options{})
	for _, status := range []uint32{0, 2} {
		b.Run(fmt.Sprint("status=", status), func(b *testing.B) {
			bn.onRoute = func(a *state.Applied) {
				b.ReportAllocs()
				for b.Loop() {
					fresh := *a // not decoded yet
					router.Route(&fresh)
				}
			}
			bn.send(usual(status), eventlog.FlagHandlers)
			bn.onRoute = nil
		})
	}
}

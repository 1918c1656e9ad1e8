// Package pipeline decides what an event in its new state sets off.
//
// Route is called by the fold for every event of this backend, in the order of the log. A cheap test comes first: most
// events name no handlers, or nothing in their namespace would take them, and nothing more is done with them. The others
// are decoded, and their routes are found: a route for each workflow of the pipelines that the event names, then one for
// each handler that the check and the metrics name, with sets replaced by their members. The filters of ours are asked at
// once; what may still pass becomes a delivery in the handler's queue. No script and no command runs on this goroutine.
//
// The handler's workers ask the rest, several at a time: Decide whether a delivery goes out, by all filters of its route, by
// what the event depends on, and by what it is grouped; Shape what the handler gets, by the route's mutator; Fallback
// where an event goes that could not be handed over.
//
// Routes are independent of one another: a filter or mutator of one that is unknown stops that one only, where Sensu
// leaves out all that come after it. A filter that is unknown denies. What a mutator changes is for its own handler only.
package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options wires a Router.
type Options struct {
	// Config is the present definitions. Required.
	Config func() *config.Snapshot
	// Dispatch takes the deliveries; it must not block. Required.
	Dispatch func(*handler.Delivery)
	// Trace is told what became of incidents and resolutions that no delivery was made of; it must not block. May be nil.
	Trace func(*trace.Delivery)
	// Inhibited says whether an incident is not handled because of what it depends on, and by what. Nil means never.
	Inhibited func(ctx context.Context, ev *resource.Event) (by []string, inhibited bool)
	// Present has the newest events, so that a group's resolution can tell that others of the group still fail. Nil means
	// that it does not.
	Present interface {
		Select(ctx context.Context, query state.Query) (*state.Page, error)
	}
	// Events is where scripts look up other events. Nil means that those throw which do.
	Events filter.Events
	// Permit limits Events to what the author of a filter or mutator may read. Nil means that there is no limit.
	Permit func(author *resource.Author, events filter.Events) filter.Events
	// Assets finds what the named assets of a namespace bring. Nil means that filters and mutators go without.
	Assets func(ctx context.Context, namespace string, names []string) (*AssetSet, error)
	// Expressions runs filters and mutators that users write. Without it they give no answer, as those that fail.
	Expressions *filter.Pool
	// FilterBudget is how long one expression of a filter may take for one event. Default that of package filter.
	FilterBudget time.Duration
	// MaxMutation bounds a mutator's command without a timeout of its own. Default 1 minute.
	MaxMutation time.Duration
	// MaxProcesses is how many commands of mutators run at a time. Default 32.
	MaxProcesses int
	// PassEnv names further variables of this process's environment that commands get. Default none.
	PassEnv []string
	// NoCommands is why mutators' commands are not run. Default nil: they are.
	NoCommands error
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// AssetSet is what assets bring to filters and mutators.
type AssetSet struct {
	// Scripts are JavaScript files, which run before an expression or a script does.
	Scripts []string
	// Env is for commands, as NAME=value: PATH, LD_LIBRARY_PATH and CPATH go in front of those they have.
	Env []string
}

// Router routes events to handlers. All methods may be called at the same time.
type Router struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for lines that may come for each event
	metrics metrics
	filters *filter.Engine
	env     []string // of commands

	processes chan struct{} // has room for those that run

	lastGate atomic.Pointer[gate]

	mu   sync.Mutex     // guards told
	told map[string]any // what was logged, and of which definition
}

// maxTold bounds told.
const maxTold = 1000

type metrics struct {
	events   *prometheus.CounterVec
	filtered *prometheus.CounterVec
	errors   *prometheus.CounterVec
	seconds  prometheus.Histogram
	mutate   prometheus.Histogram

	unhandled, dispatched, denied, failed prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		events:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_events_total", Help: "Events routed: without handlers, with deliveries, with none because of filters, or with none because of errors."}, []string{"verdict"}),
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_filtered_total", Help: "Deliveries that a filter denied: a built-in one, or one that a user defined; or that are inhibited. Events that no handler of their namespace takes are not among them."}, []string{"filter"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_errors_total", Help: "Deliveries that failed before their handler, by step."}, []string{"step"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_pipeline_handle_seconds", Help: "Decoding, asking the built-in filters and handing over one event that handlers might take.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
		mutate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_pipeline_mutate_seconds", Help: "Shaping one delivery with a mutator other than the default one.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 12),
		}),
	}
	m.unhandled, m.dispatched = m.events.WithLabelValues("unhandled"), m.events.WithLabelValues("dispatched")
	m.denied, m.failed = m.events.WithLabelValues("filtered"), m.events.WithLabelValues("failed")
	for _, name := range []string{"is_incident", "not_silenced", "has_metrics", "fatigue_check", "allow_list", "defined", "inhibited"} {
		m.filtered.WithLabelValues(name)
	}
	for _, step := range []string{"decode", "resolve", "filter", "mutate", "dispatch"} {
		m.errors.WithLabelValues(step)
	}
	if r != nil {
		r.MustRegister(m.events, m.filtered, m.errors, m.seconds, m.mutate)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Router, error) {
	if opts.Config == nil || opts.Dispatch == nil {
		return nil, errors.New("pipeline: Config and Dispatch are required")
	}
	if opts.MaxMutation < 0 || opts.MaxProcesses < 0 {
		return nil, errors.New("pipeline: MaxMutation and MaxProcesses must not be negative")
	}
	if opts.MaxMutation == 0 {
		opts.MaxMutation = time.Minute
	}
	if opts.MaxProcesses == 0 {
		opts.MaxProcesses = 32
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Router{
		opts: opts, log: opts.Logger.With("component", "pipeline"), rare: rarelog.New(opts.Logger.With("component", "pipeline")), metrics: newMetrics(opts.Registerer), told: map[string]any{},
		env: environment(opts.PassEnv), processes: make(chan struct{}, opts.MaxProcesses),
	}
	filters := filter.Options{Budget: opts.FilterBudget, Pool: opts.Expressions, Events: opts.Events, Permit: opts.Permit, Logger: opts.Logger, Registerer: opts.Registerer}
	if opts.Assets != nil {
		filters.Scripts = func(ctx context.Context, namespace string, names []string) ([]string, error) {
			set, err := opts.Assets(ctx, namespace, names)
			if err != nil {
				return nil, err
			}
			return set.Scripts, nil
		}
	}
	r.filters = filter.New(filters)
	return r, nil
}

// Route sets off what the event asks for.
func (r *Router) Route(a *state.Applied) {
	sn := r.opts.Config()
	g := r.gate(sn)
	if !a.HasHandlers && !a.HasMetrics && !g.routed(a.Namespace, a.Check) {
		r.metrics.unhandled.Inc()
		if a.Incident { // of a resolution the event itself says as much, and half as many traces cost half
			r.end(a, trace.NoHandler, "the event names no handler and no pipeline")
		}
		return
	}
	facts := filter.Facts{Incident: a.Incident, Resolution: a.Resolution, Silenced: a.Silenced, HasMetrics: a.HasMetrics}
	passes, defined := g.passes(a.Namespace, facts)
	switch {
	case passes:
		begin := time.Now()
		r.handle(definitions{Snapshot: sn}, a, facts)
		r.metrics.seconds.Observe(time.Since(begin).Seconds())
	case defined:
		r.metrics.denied.Inc()
		facts.Silenced = false
		if passes, _ := g.passes(a.Namespace, facts); passes && a.Silenced {
			r.end(a, trace.Silenced, "it is silenced, and no handler in its namespace takes what is")
		} else {
			r.end(a, trace.Filtered, "the built-in filters of all handlers in its namespace deny it")
		}
	default:
		r.metrics.unhandled.Inc()
		r.end(a, trace.NoHandler, "there are no handlers in its namespace")
	}
}

// end tells the trace of an event that goes nowhere, if anybody may ask why.
func (r *Router) end(a *state.Applied, verdict trace.Verdict, reason string) {
	if r.opts.Trace == nil || !a.Incident && !a.Resolution {
		return
	}
	id := eventID(a)
	r.opts.Trace(&trace.Delivery{
		ID: id, Event: id, Namespace: a.Namespace, Entity: a.Entity, Check: a.Check, Status: a.Status,
		Incident: a.Incident, Resolution: a.Resolution, Received: a.Received, Verdict: verdict, Reason: reason,
	})
}

// eventID is what Applied.ID is, for less.
func eventID(a *state.Applied) string {
	var room [48]byte
	b := append(strconv.AppendInt(room[:0], int64(a.Partition), 10), '-')
	b = append(strconv.AppendUint(b, a.Seq, 10), '-')
	return string(strconv.AppendInt(b, int64(a.Sub), 10))
}

// endRoute tells the trace of one route that an event does not take.
func (r *Router) endRoute(a *state.Applied, rt *route, d handler.Decision) {
	if r.opts.Trace == nil || !a.Incident && !a.Resolution {
		return
	}
	id := eventID(a)
	t := &trace.Delivery{
		ID: id + rt.id(), Event: id, Namespace: a.Namespace, Entity: a.Entity, Check: a.Check, Status: a.Status,
		Incident: a.Incident, Resolution: a.Resolution, Received: a.Received,
		Handler: rt.name, Verdict: d.Verdict, Reason: d.Reason, Steps: d.Steps,
	}
	t.Pipeline, t.Workflow = rt.names()
	r.opts.Trace(t)
}

// handle decodes an event and hands it to its handlers.
func (r *Router) handle(defs definitions, a *state.Applied, facts filter.Facts) {
	ev, err := a.Event()
	if err != nil {
		r.metrics.failed.Inc()
		r.metrics.errors.WithLabelValues("decode").Inc()
		r.rare.Error("event cannot be handled", a.Namespace, "namespace", a.Namespace, "entity", a.Entity, "check", a.Check, "err", err)
		r.end(a, trace.Failed, "the event cannot be read")
		return
	}
	routes := r.routes(defs, a.Namespace, ev)
	if len(routes) == 0 {
		r.metrics.unhandled.Inc()
		r.end(a, trace.NoHandler, notDefined(ev))
		return
	}
	var body []byte
	var places places
	dispatched, failed := 0, 0
	fail := func(rt *route, step string, err error) {
		failed++
		r.metrics.errors.WithLabelValues(step).Inc()
		r.tell(rt, err)
		r.endRoute(a, rt, handler.Decision{Verdict: trace.Failed, Reason: err.Error()})
	}
	for i := range routes {
		rt := &routes[i]
		denied, err := r.askFirst(defs, rt, ev, facts)
		if err != nil {
			fail(rt, "filter", err)
			continue
		}
		if denied.Verdict != "" {
			r.endRoute(a, rt, denied)
			continue
		}
		if err := rt.usable(); err != nil {
			fail(rt, "resolve", err)
			continue
		}
		sub, err := places.next(a.Sub, rt.name)
		if err != nil {
			fail(rt, "dispatch", err)
			continue
		}
		if body == nil {
			body = ev.AppendProto(nil)
		}
		dispatched++
		dl := &handler.Delivery{
			ID: eventID(a) + rt.id(), Partition: a.Partition, Seq: a.Seq, Sub: sub,
			Namespace: a.Namespace, Handler: rt.name, Entity: a.Entity, Check: a.Check,
			Received: a.Received, Status: a.Status, Incident: a.Incident, Resolution: a.Resolution, Event: body,
		}
		dl.Pipeline, dl.Workflow = rt.names()
		r.opts.Dispatch(dl)
	}
	switch {
	case dispatched > 0:
		r.metrics.dispatched.Inc()
	case failed > 0:
		r.metrics.failed.Inc()
	default:
		r.metrics.denied.Inc()
	}
}

// notDefined says which names of an event lead nowhere.
func notDefined(ev *resource.Event) string {
	names := handlerNames(ev)
	if len(names) == 0 {
		return "what the event names leads to no handler"
	}
	return "no handler is defined of those that the event names: " + joinNames(names)
}

// resolve finds the handlers an event goes to: those its check and its metrics name, with sets replaced by their members
// however deep, each once, in the order of their names. Names that are not defined are left out: agents name "keepalive"
// and "registration" without being asked.
func (r *Router) resolve(defs definitions, namespace string, ev *resource.Event) []*resource.Handler {
	names := handlerNames(ev)
	var found []*resource.Handler
	seen := map[string]struct{}{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if _, again := seen[name]; again {
			continue
		}
		seen[name] = struct{}{}
		h, ok := defs.handler(namespace, name)
		switch {
		case !ok:
			r.log.Debug("handler is not defined", "namespace", namespace, "handler", name)
		case h.Type == "set":
			names = append(names, h.Handlers...)
		default:
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b *resource.Handler) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return found
}

// tell logs why an event did not get to a handler, once for each reason until the definition changes that names it.
func (r *Router) tell(rt *route, err error) {
	owner, attrs := rt.owner()
	key := rt.namespace + rt.id() + ": " + err.Error()
	r.mu.Lock()
	again := r.told[key] == owner
	if len(r.told) >= maxTold {
		clear(r.told)
	}
	r.told[key] = owner
	r.mu.Unlock()
	if !again {
		r.log.With(attrs...).Error("events are not handled", "namespace", rt.namespace, "handler", rt.name, "err", err)
	}
}

// encode leaves out the metric points that JSON has no number for: they must not keep an incident from its handlers.
func encode(ev *resource.Event) ([]byte, error) {
	data, err := json.Marshal(ev)
	var value *json.UnsupportedValueError
	if errors.As(err, &value) && ev.Metrics != nil {
		metrics := *ev.Metrics
		metrics.Points = slices.DeleteFunc(slices.Clone(metrics.Points), func(p resource.MetricPoint) bool {
			return math.IsNaN(p.Value) || math.IsInf(p.Value, 0)
		})
		finite := *ev
		finite.Metrics = &metrics
		data, err = json.Marshal(&finite)
	}
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return data, nil
}

// Package pipeline decides what an event in its new state sets off.
//
// Route is called by the fold for every event of this backend, in the order of the log. A cheap test comes first: most
// events name no handlers, or nothing in their namespace would take them, and nothing more is done with them. The others
// are decoded, and their routes are found: a route for each workflow of the pipelines that the event names, then one for
// each handler that the check and the metrics name, with sets replaced by their members. For each route its filters
// decide, its mutator shapes the data, and the delivery goes to the handler's queue.
//
// Routes are independent of one another: a filter or mutator of one that is unknown stops that one only, where Sensu
// leaves out all that come after it. A filter that is unknown denies.
//
// The fold's goroutine waits for filters that users define, so that deliveries keep the order of the log and are stored with
// the fold's position. Package filter bounds how long.
package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Options wires a Router.
type Options struct {
	// Config is the present definitions. Required.
	Config func() *config.Snapshot
	// Dispatch takes the deliveries; it must not block. Required.
	Dispatch func(*handler.Delivery)
	// FilterBudget is how long one expression of a filter may take for one event. Default that of package filter.
	FilterBudget time.Duration
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
}

// Router routes events to handlers. Its only method may be called for several partitions at a time.
type Router struct {
	opts    Options
	log     *slog.Logger
	metrics metrics
	filters *filter.Engine

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

	unhandled, dispatched, denied, failed prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		events:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_events_total", Help: "Events routed: without handlers, with deliveries, with none because of filters, or with none because of errors."}, []string{"verdict"}),
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_filtered_total", Help: "Deliveries that a filter denied: a built-in one, or one that a user defined. Events that no handler of their namespace takes are not among them."}, []string{"filter"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_errors_total", Help: "Deliveries that failed before their handler, by step."}, []string{"step"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_pipeline_handle_seconds", Help: "Decoding, filtering, shaping and handing over one event that handlers might take.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
	}
	m.unhandled, m.dispatched = m.events.WithLabelValues("unhandled"), m.events.WithLabelValues("dispatched")
	m.denied, m.failed = m.events.WithLabelValues("filtered"), m.events.WithLabelValues("failed")
	for _, name := range []string{"is_incident", "not_silenced", "has_metrics", "defined"} {
		m.filtered.WithLabelValues(name)
	}
	for _, step := range []string{"decode", "resolve", "filter", "mutate", "dispatch"} {
		m.errors.WithLabelValues(step)
	}
	if r != nil {
		r.MustRegister(m.events, m.filtered, m.errors, m.seconds)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Router, error) {
	if opts.Config == nil || opts.Dispatch == nil {
		return nil, errors.New("pipeline: Config and Dispatch are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Router{
		opts: opts, log: opts.Logger.With("component", "pipeline"), metrics: newMetrics(opts.Registerer), told: map[string]any{},
		filters: filter.New(filter.Options{Budget: opts.FilterBudget, Logger: opts.Logger, Registerer: opts.Registerer}),
	}, nil
}

// Route sets off what the event asks for.
func (r *Router) Route(a *state.Applied) {
	if !a.HasHandlers && !a.HasMetrics {
		r.metrics.unhandled.Inc()
		return
	}
	sn := r.opts.Config()
	facts := filter.Facts{Incident: a.Incident, Resolution: a.Resolution, Silenced: a.Silenced, HasMetrics: a.HasMetrics}
	passes, defined := r.gate(sn).passes(a.Namespace, facts)
	switch {
	case passes:
		begin := time.Now()
		r.handle(sn, a, facts)
		r.metrics.seconds.Observe(time.Since(begin).Seconds())
	case defined:
		r.metrics.denied.Inc()
	default:
		r.metrics.unhandled.Inc()
	}
}

// handle decodes an event and hands it to its handlers.
func (r *Router) handle(sn *config.Snapshot, a *state.Applied, facts filter.Facts) {
	ev, err := a.Event()
	if err != nil {
		r.metrics.failed.Inc()
		r.metrics.errors.WithLabelValues("decode").Inc()
		r.log.Error("event cannot be handled", "namespace", a.Namespace, "entity", a.Entity, "check", a.Check, "err", err)
		return
	}
	routes := r.routes(sn, a.Namespace, ev)
	if len(routes) == 0 {
		r.metrics.unhandled.Inc()
		return
	}
	var shapes shaped
	var places places
	dispatched, failed := 0, 0
	for i := range routes {
		rt := &routes[i]
		passes, err := r.passes(sn, rt, ev, facts)
		if err != nil {
			failed++
			r.metrics.errors.WithLabelValues("filter").Inc()
			r.tell(rt, err)
			continue
		}
		if !passes {
			continue
		}
		if err := rt.usable(); err != nil {
			failed++
			r.metrics.errors.WithLabelValues("resolve").Inc()
			r.tell(rt, err)
			continue
		}
		data, err := shapes.of(ev, rt.mutator)
		if err != nil {
			failed++
			r.metrics.errors.WithLabelValues("mutate").Inc()
			r.tell(rt, err)
			continue
		}
		sub, err := places.next(a.Sub, rt.name)
		if err != nil {
			failed++
			r.metrics.errors.WithLabelValues("dispatch").Inc()
			r.tell(rt, err)
			continue
		}
		dispatched++
		r.opts.Dispatch(&handler.Delivery{
			ID: a.ID() + rt.id(), Partition: a.Partition, Seq: a.Seq, Sub: sub,
			Namespace: a.Namespace, Handler: rt.name, Entity: a.Entity, Check: a.Check,
			Received: a.Received, Data: data,
		})
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

// resolve finds the handlers an event goes to: those its check and its metrics name, with sets replaced by their members
// however deep, each once, in the order of their names. Names that are not defined are left out: agents name "keepalive"
// and "registration" without being asked.
func (r *Router) resolve(sn *config.Snapshot, namespace string, ev *resource.Event) []*resource.Handler {
	var names []string
	if ev.Check != nil {
		names = append(names, ev.Check.Handlers...)
	}
	if ev.Metrics != nil {
		names = append(names, ev.Metrics.Handlers...)
	}
	var found []*resource.Handler
	seen := map[string]struct{}{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if _, again := seen[name]; again {
			continue
		}
		seen[name] = struct{}{}
		h, ok := config.Get(sn, config.Handlers, namespace, name)
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

// passes asks a route's filters in their order; the first that denies ends it.
func (r *Router) passes(sn *config.Snapshot, rt *route, ev *resource.Event, facts filter.Facts) (bool, error) {
	for name := range rt.filters {
		pass := false
		if builtin, ok := filter.Builtin(name); ok {
			pass = builtin(facts)
		} else {
			def, ok := config.Get(sn, config.Filters, rt.namespace, name)
			if !ok {
				return false, fmt.Errorf("there is no filter %q", name)
			}
			pass = r.filters.Passes(def, ev)
			name = "defined"
		}
		if !pass {
			r.metrics.filtered.WithLabelValues(name).Inc()
			return false, nil
		}
	}
	return true, nil
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

// shaped is an event's data as the mutators give it, each made once for all handlers that want it.
type shaped struct {
	json []byte
}

func (s *shaped) of(ev *resource.Event, mutator string) ([]byte, error) {
	switch mutator {
	case "", "json":
		var err error
		if s.json == nil {
			s.json, err = encode(ev)
		}
		return s.json, err
	case "only_check_output":
		if ev.Check == nil {
			return nil, errors.New("mutate with only_check_output: the event has no check")
		}
		return []byte(ev.Check.Output), nil
	}
	return nil, fmt.Errorf("there is no mutator %q", mutator)
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

// Package pipeline decides what an event in its new state sets off.
//
// Route is called by the fold for every event of this backend, in the order of the log. A cheap test comes first: most
// events name no handlers, or no handler of their namespace would take them, and nothing more is done with them. The
// others are decoded, the handlers that the check and the metrics name are looked up, sets are replaced by their
// members, and for each handler its filters decide, its mutator shapes the data, and the delivery goes to the handler's
// queue.
//
// Handlers are independent of one another: a filter or mutator of one that is unknown stops that one only, where Sensu
// leaves out all that come after it in the alphabet. A filter that is unknown denies.
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
	Dispatch   func(*handler.Delivery)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Router routes events to handlers. Its only method may be called for several partitions at a time.
type Router struct {
	opts    Options
	log     *slog.Logger
	metrics metrics

	lastGate atomic.Pointer[gate]

	mu   sync.Mutex                   // guards told
	told map[string]*resource.Handler // what was logged, and of which definition
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
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_filtered_total", Help: "Deliveries that a filter denied. Events that no handler of their namespace takes are not among them."}, []string{"filter"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_errors_total", Help: "Deliveries that failed before their handler, by step."}, []string{"step"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_pipeline_handle_seconds", Help: "Decoding, filtering, shaping and handing over one event that handlers might take.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
	}
	m.unhandled, m.dispatched = m.events.WithLabelValues("unhandled"), m.events.WithLabelValues("dispatched")
	m.denied, m.failed = m.events.WithLabelValues("filtered"), m.events.WithLabelValues("failed")
	for _, name := range []string{"is_incident", "not_silenced", "has_metrics"} {
		m.filtered.WithLabelValues(name)
	}
	for _, step := range []string{"decode", "filter", "mutate"} {
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
	return &Router{opts: opts, log: opts.Logger.With("component", "pipeline"), metrics: newMetrics(opts.Registerer), told: map[string]*resource.Handler{}}, nil
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
	handlers := r.resolve(sn, a.Namespace, ev)
	if len(handlers) == 0 {
		r.metrics.unhandled.Inc()
		return
	}
	var shapes shaped
	dispatched, failed := 0, 0
	for _, h := range handlers {
		passes, err := r.passes(h, facts)
		if err != nil {
			failed++
			r.metrics.errors.WithLabelValues("filter").Inc()
			r.tell(h, err)
			continue
		}
		if !passes {
			continue
		}
		data, err := shapes.of(ev, h.Mutator)
		if err != nil {
			failed++
			r.metrics.errors.WithLabelValues("mutate").Inc()
			r.tell(h, err)
			continue
		}
		dispatched++
		r.opts.Dispatch(&handler.Delivery{
			ID: a.ID() + "/" + h.Metadata.Name, Partition: a.Partition, Seq: a.Seq, Sub: a.Sub,
			Namespace: a.Namespace, Handler: h.Metadata.Name, Entity: a.Entity, Check: a.Check,
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

// passes asks a handler's filters in their order; the first that denies ends it.
func (r *Router) passes(h *resource.Handler, facts filter.Facts) (bool, error) {
	for _, name := range h.Filters {
		pass, ok := filter.Builtin(name)
		if !ok {
			return false, fmt.Errorf("there is no filter %q", name)
		}
		if !pass(facts) {
			r.metrics.filtered.WithLabelValues(name).Inc()
			return false, nil
		}
	}
	return true, nil
}

// tell logs why an event did not get to a handler, once for each reason until the handler's definition changes.
func (r *Router) tell(h *resource.Handler, err error) {
	key := h.Metadata.Namespace + "/" + h.Metadata.Name + ": " + err.Error()
	r.mu.Lock()
	again := r.told[key] == h
	if len(r.told) >= maxTold {
		clear(r.told)
	}
	r.told[key] = h
	r.mu.Unlock()
	if !again {
		r.log.Error("events are not handled", "namespace", h.Metadata.Namespace, "handler", h.Metadata.Name, "err", err)
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

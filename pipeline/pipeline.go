// Package pipeline decides what an event in its new state sets off.
//
// Route is called by the fold for every event of this backend, in the order of the log. A cheap test comes first: most
// events name no handlers and carry no metrics, and nothing more is done with them. For the others the handlers that the
// check and the metrics name are looked up, sets are replaced by their members, and for each handler its filters decide,
// its mutator shapes the data, and the delivery goes to the handler's queue.
//
// Handlers are independent of one another: a filter or mutator of one that is unknown stops that one only, where Sensu
// leaves out all that come after it in the alphabet. A filter that is unknown denies.
package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

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

	mu     sync.Mutex // guards told
	told   map[string]struct{}
	toldAt uint64 // revision of the definitions that told is about
}

type metrics struct {
	events   *prometheus.CounterVec
	filtered *prometheus.CounterVec
	errors   *prometheus.CounterVec

	unhandled, dispatched, denied prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		events:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_events_total", Help: "Events routed: without handlers, with deliveries, or with all deliveries filtered out."}, []string{"verdict"}),
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_filtered_total", Help: "Deliveries that a filter denied."}, []string{"filter"}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_pipeline_errors_total", Help: "Deliveries that failed before their handler, by step."}, []string{"step"}),
	}
	m.unhandled, m.dispatched, m.denied = m.events.WithLabelValues("unhandled"), m.events.WithLabelValues("dispatched"), m.events.WithLabelValues("filtered")
	for _, name := range []string{"is_incident", "not_silenced", "has_metrics"} {
		m.filtered.WithLabelValues(name)
	}
	for _, step := range []string{"decode", "filter", "mutate"} {
		m.errors.WithLabelValues(step)
	}
	if r != nil {
		r.MustRegister(m.events, m.filtered, m.errors)
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
	return &Router{opts: opts, log: opts.Logger.With("component", "pipeline"), metrics: newMetrics(opts.Registerer), told: map[string]struct{}{}}, nil
}

// Route sets off what the event asks for.
func (r *Router) Route(a *state.Applied) {
	if !a.HasHandlers && !a.HasMetrics {
		r.metrics.unhandled.Inc()
		return
	}
	ev, err := a.Event()
	if err != nil {
		r.metrics.errors.WithLabelValues("decode").Inc()
		r.log.Error("event cannot be handled", "entity", a.Entity, "check", a.Check, "err", err)
		return
	}
	sn := r.opts.Config()
	handlers := r.resolve(sn, a.Namespace, ev)
	if len(handlers) == 0 {
		r.metrics.unhandled.Inc()
		return
	}
	facts := filter.Facts{Incident: a.Incident, Resolution: a.Resolution, Silenced: a.Silenced, HasMetrics: a.HasMetrics}
	var shapes shaped
	dispatched := false
	for _, h := range handlers {
		if !r.passes(sn, h, facts) {
			continue
		}
		data, err := shapes.of(ev, h.Mutator)
		if err != nil {
			r.metrics.errors.WithLabelValues("mutate").Inc()
			r.tell(sn, "event was not handled", h, "mutator "+h.Mutator, err)
			continue
		}
		dispatched = true
		r.opts.Dispatch(&handler.Delivery{
			ID: a.ID() + "/" + h.Metadata.Name, Partition: a.Partition, Seq: a.Seq, Sub: a.Sub,
			Namespace: a.Namespace, Handler: h.Metadata.Name, Entity: a.Entity, Check: a.Check, Data: data,
		})
	}
	if dispatched {
		r.metrics.dispatched.Inc()
	} else {
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
	slices.SortFunc(found, func(a, b *resource.Handler) int {
		if a.Metadata.Name < b.Metadata.Name {
			return -1
		}
		return 1
	})
	return found
}

// passes asks a handler's filters in their order; the first that denies ends it.
func (r *Router) passes(sn *config.Snapshot, h *resource.Handler, facts filter.Facts) bool {
	for _, name := range h.Filters {
		pass, ok := filter.Builtin(name)
		if !ok {
			r.metrics.errors.WithLabelValues("filter").Inc()
			r.tell(sn, "event was not handled", h, "filter "+name, errors.New("there is no such filter"))
			return false
		}
		if !pass(facts) {
			r.metrics.filtered.WithLabelValues(name).Inc()
			return false
		}
	}
	return true
}

// tell logs what is wrong with a handler's definition, once until the definitions change.
func (r *Router) tell(sn *config.Snapshot, msg string, h *resource.Handler, what string, err error) {
	key := h.Metadata.Namespace + "/" + h.Metadata.Name + " " + what
	r.mu.Lock()
	if r.toldAt != sn.Revision() {
		clear(r.told)
		r.toldAt = sn.Revision()
	}
	_, again := r.told[key]
	r.told[key] = struct{}{}
	r.mu.Unlock()
	if !again {
		r.log.Error(msg, "namespace", h.Metadata.Namespace, "handler", h.Metadata.Name, "because", what, "err", err)
	}
}

// shaped is an event's data as the mutators give it, each made once for all handlers that want it.
type shaped struct {
	json []byte
}

func (s *shaped) of(ev *resource.Event, mutator string) ([]byte, error) {
	switch mutator {
	case "", "json":
		if s.json == nil {
			data, err := json.Marshal(ev)
			if err != nil {
				return nil, fmt.Errorf("encode event: %w", err)
			}
			s.json = data
		}
		return s.json, nil
	case "only_check_output":
		if ev.Check == nil {
			return nil, errors.New("the event has no check")
		}
		return []byte(ev.Check.Output), nil
	}
	return nil, errors.New("there is no such mutator")
}

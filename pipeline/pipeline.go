// Package pipeline routes events, in the state that the fold gave them, to handlers.
//
// The fold calls Route for every event of this backend, in the order of the log. A cheap test ends most events: they
// name no handlers, or no handler of their namespace would take them. Route decodes the others, and package workflow
// finds their routes: one for each workflow of the pipelines that the event names, then one for each handler that the
// check and the metrics name, with sets replaced by their members. Route evaluates the built-in filters at once; an
// event that passes them becomes a delivery in the handler's queue.
//
// Route never blocks and runs neither scripts nor commands: the handlers' workers do that.
package pipeline

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/handler"
	"github.com/lapwing-monitoring/lapwing/pipeline/workflow"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options configures a Router.
type Options struct {
	// Config is the present definitions. Required.
	Config func() *config.Snapshot
	// Workflows finds the routes of events and asks their first filters. Required.
	Workflows *workflow.Workflows
	// Handlers takes the deliveries. Required.
	Handlers *handler.Dispatcher
	// Trace receives the outcome of incidents and resolutions without a delivery. It must not block. Default none.
	Trace      func(*trace.Delivery)
	Registerer prometheus.Registerer
}

// Router routes events to handlers. Route is safe for concurrent use.
type Router struct {
	config    func() *config.Snapshot
	workflows *workflow.Workflows
	handlers  *handler.Dispatcher
	trace     func(*trace.Delivery) // nil if there are no traces
	metrics   metrics

	lastGate atomic.Pointer[gate]
}

type metrics struct {
	events  *prometheus.CounterVec
	seconds prometheus.Histogram

	unhandled, dispatched, denied, failed prometheus.Counter
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_pipeline_events_total",
			Help: "Events routed: without handlers, with deliveries, with none because of filters, or with none because of errors.",
		}, []string{"verdict"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lapwing_pipeline_handle_seconds",
			Help:    "Decoding, asking the built-in filters and handing over one event that handlers might take.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
	}
	m.unhandled, m.dispatched = m.events.WithLabelValues("unhandled"), m.events.WithLabelValues("dispatched")
	m.denied, m.failed = m.events.WithLabelValues("filtered"), m.events.WithLabelValues("failed")
	if r != nil {
		r.MustRegister(m.events, m.seconds)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Router, error) {
	if opts.Config == nil || opts.Workflows == nil || opts.Handlers == nil {
		return nil, errors.New("pipeline: Config, Workflows and Handlers are required")
	}
	return &Router{
		config: opts.Config, workflows: opts.Workflows, handlers: opts.Handlers, trace: opts.Trace,
		metrics: newMetrics(opts.Registerer),
	}, nil
}

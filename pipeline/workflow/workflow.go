// Package workflow finds the workflows of an event and runs their filters and mutators: each workflow is one way to a
// handler.
//
// Package pipeline calls Routes for the handlers that an event may reach, and AskFirst for the filters that cost next
// to nothing. The handlers' workers, several at a time, call the rest: Decide evaluates all filters of a delivery's
// route and the event's dependencies, and finds its group; Shape runs the route's mutator; Merge makes one event of a
// group; Fallback returns the next routes of a delivery that failed. The API calls Simulate to show what would become
// of an event.
//
// Routes are independent of one another: an undefined filter or mutator stops its own route only, where Sensu skips
// all routes after it. An undefined filter denies. What a mutator changes reaches its own handler only. Queueing and
// sending are left to package handler.
package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/oncall"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options configures Workflows.
type Options struct {
	// Config returns the present definitions. Required.
	Config func() *config.Snapshot
	// Inhibited reports whether a failing dependency keeps an incident from being handled, and which one. Default:
	// none does.
	Inhibited func(ctx context.Context, ev *resource.Event) (by []string, inhibited bool)
	// Present has the newest events, among which Merge finds others of a resolved group that still fail. Default: it
	// finds none.
	Present interface {
		Select(ctx context.Context, query state.Query) (*state.Page, error)
	}
	// Events is where scripts look up other events. Default: such scripts throw.
	Events filter.Events
	// OnCall says whom the steps of escalations notify. Simulations ask it; without it they do not show steps.
	OnCall *oncall.Directory
	// InCalendar answers in_calendar of filters and mutators. Default: no calendar is active.
	InCalendar filter.InCalendar
	// Permit limits Events to what the author of a filter or mutator may read. Default: no limit.
	Permit func(author *resource.Author, events filter.Events) filter.Events
	// Assets returns the contents of the named assets of a namespace. Default: filters and mutators run without
	// assets.
	Assets func(ctx context.Context, namespace string, names []string) (*AssetSet, error)
	// Expressions runs filters and mutators that users write. Default: they give no answer, as if they failed.
	Expressions *filter.Pool
	// FilterBudget is how long one expression of a filter may run for one event. Default that of package filter.
	FilterBudget time.Duration
	// MaxMutation is the timeout of a mutator's command that has none of its own. Default 1 minute.
	MaxMutation time.Duration
	// MaxProcesses is how many commands of mutators run at a time. Default 32.
	MaxProcesses int
	// PassEnv names more variables of this process's environment for commands. Default none.
	PassEnv []string
	// NoCommands is the error of mutators whose commands are not run. Default nil: they run.
	NoCommands error
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// AssetSet is what assets add to filters and mutators.
type AssetSet struct {
	// Scripts are JavaScript files, which run before an expression or a script.
	Scripts []string
	// Env is for commands, as NAME=value: PATH, LD_LIBRARY_PATH and CPATH are put in front of the present values.
	Env []string
}

// Decision is a verdict on a delivery.
type Decision struct {
	// Verdict ends the delivery, for the given Reason; "" lets it go on.
	Verdict trace.Verdict
	Reason  string
	// GroupKey identifies the event's group; "" for none.
	GroupKey string
	// Steps explain the decision.
	Steps []trace.Step
}

// Workflows decides about deliveries and makes their handlers' input. All methods are safe for concurrent use.
type Workflows struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for lines that each event may cause
	metrics metrics
	filters *filter.Engine
	env     []string // of commands

	processes chan struct{} // a slot for each command that may run

	mu     sync.Mutex     // guards logged
	logged map[string]any // by line: the definition that it was about
}

// maxLogged bounds logged.
const maxLogged = 1000

type metrics struct {
	filtered *prometheus.CounterVec
	errors   *prometheus.CounterVec
	mutate   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		filtered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_pipeline_filtered_total",
			Help: "Deliveries that a filter denied: a built-in one, or one that a user defined; or that are inhibited. " +
				"Events that no handler of their namespace takes are not among them.",
		}, []string{"filter"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_pipeline_errors_total", Help: "Deliveries that failed before their handler, by step.",
		}, []string{"step"}),
		mutate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_pipeline_mutate_seconds", Help: "Shaping one delivery with a mutator other than the default one.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 12),
		}),
	}
	for _, name := range []string{
		"is_incident", "not_silenced", "has_metrics", "fatigue_check", "allow_list", "defined", "inhibited",
	} {
		m.filtered.WithLabelValues(name)
	}
	for _, step := range []string{"decode", "resolve", "filter", "mutate", "dispatch"} {
		m.errors.WithLabelValues(step)
	}
	if r != nil {
		r.MustRegister(m.filtered, m.errors, m.mutate)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Workflows, error) {
	if opts.Config == nil {
		return nil, errors.New("workflow: Config is required")
	}
	if opts.MaxMutation < 0 || opts.MaxProcesses < 0 {
		return nil, errors.New("workflow: MaxMutation and MaxProcesses must not be negative")
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
	log := opts.Logger.With("component", "pipeline")
	w := &Workflows{
		opts: opts, log: log, rare: rarelog.New(log), metrics: newMetrics(opts.Registerer), logged: map[string]any{},
		env: environment(opts.PassEnv), processes: make(chan struct{}, opts.MaxProcesses),
	}
	filters := filter.Options{
		Budget: opts.FilterBudget, Pool: opts.Expressions, Events: opts.Events, Permit: opts.Permit,
		InCalendar: opts.InCalendar,
		Logger:     opts.Logger, Registerer: opts.Registerer,
	}
	if opts.Assets != nil {
		filters.Scripts = func(ctx context.Context, namespace string, names []string) ([]string, error) {
			set, err := opts.Assets(ctx, namespace, names)
			if err != nil {
				return nil, err
			}
			return set.Scripts, nil
		}
	}
	w.filters = filter.New(filters)
	return w, nil
}

// Prepare compiles the filters and mutators of a snapshot that differ from the earlier one, which is nil at first.
func (w *Workflows) Prepare(before, sn *config.Snapshot) {
	if before == nil || !config.Same(before, sn, config.Filters) {
		w.filters.Keep(config.List(sn, config.Filters, ""))
	}
	if before == nil || !config.Same(before, sn, config.Mutators) {
		w.filters.KeepMutators(config.List(sn, config.Mutators, ""))
	}
}

// Failed counts and logs why an event, or a delivery, does not reach a route's handler.
func (w *Workflows) Failed(rt *Route, step string, err error) {
	w.metrics.errors.WithLabelValues(step).Inc()
	w.logOnce(rt, err)
}

// Undecodable counts an event that cannot be decoded, and logs it.
func (w *Workflows) Undecodable(namespace, entity, check string, err error) {
	w.metrics.errors.WithLabelValues("decode").Inc()
	w.rare.Error("event cannot be handled", namespace, "namespace", namespace, "entity", entity, "check", check, "err", err)
}

// logOnce logs why an event did not reach a handler, once for each reason until the definition that names it changes.
func (w *Workflows) logOnce(rt *Route, err error) {
	owner, attrs := rt.owner()
	key := rt.namespace + rt.ID() + ": " + err.Error()
	w.mu.Lock()
	again := w.logged[key] == owner
	if len(w.logged) >= maxLogged {
		clear(w.logged)
	}
	w.logged[key] = owner
	w.mu.Unlock()
	if !again {
		w.log.With(attrs...).Error("events are not handled", "namespace", rt.namespace, "handler", rt.Handler, "err", err)
	}
}

// encode returns the event as JSON. It leaves out metric points that JSON has no number for: they must not keep an
// incident from its handlers.
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

// Package workflow knows the workflows of an event: one way each to a handler, through filters and a mutator.
//
// Package pipeline asks at which handlers an event may arrive (Routes), and at once those filters that cost next to
// nothing (AskFirst). The handlers' workers ask the rest, several at a time: Decide whether a delivery goes out, by all
// filters of its route, by what the event depends on, and by how it is grouped; Shape what the handler gets, by the
// route's mutator; Merge one event of a group's; Fallback where an event goes that could not be handed over. The API
// asks Simulate what would become of an event. Nothing here queues or sends.
//
// Routes are independent of one another: a filter or mutator of one that is unknown stops that one only, where Sensu
// leaves out all that come after it. A filter that is unknown denies. What a mutator changes is for its own handler
// only.
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
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/trace"
)

// Options configures Workflows.
type Options struct {
	// Config is the present definitions. Required.
	Config func() *config.Snapshot
	// Inhibited reports whether an incident is not handled because a dependency fails, and which. Nil means never.
	Inhibited func(ctx context.Context, ev *resource.Event) (by []string, inhibited bool)
	// Present has the newest events: a group's resolution looks there for others of the group that still fail. Nil means
	// that it does not look.
	Present interface {
		Select(ctx context.Context, query state.Query) (*state.Page, error)
	}
	// Events is where scripts look up other events. Nil means that scripts which do so throw.
	Events filter.Events
	// Permit limits Events to what the author of a filter or mutator may read. Nil means that there is no limit.
	Permit func(author *resource.Author, events filter.Events) filter.Events
	// Assets finds the contents of the named assets of a namespace. Nil means that filters and mutators go without.
	Assets func(ctx context.Context, namespace string, names []string) (*AssetSet, error)
	// Expressions runs filters and mutators that users write. Without it they give no answer, as if they failed.
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

// Decision is a verdict on a delivery.
type Decision struct {
	// Verdict ends the delivery with this, and Reason says why; "" lets it go on.
	Verdict trace.Verdict
	Reason  string
	// GroupKey is what the members of a group have in common; "" for none.
	GroupKey string
	// Steps is how it came to that.
	Steps []trace.Step
}

// Workflows decides and shapes deliveries. All methods may be called at the same time.
type Workflows struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for lines that may come for each event
	metrics metrics
	filters *filter.Engine
	env     []string // of commands

	processes chan struct{} // has room for as many as may run

	mu     sync.Mutex     // guards logged
	logged map[string]any // the definition that each logged line was about
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
		Logger: opts.Logger, Registerer: opts.Registerer,
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

// Prepare compiles the filters and mutators of a snapshot that differ from those of the one before, which is nil at
// first.
func (w *Workflows) Prepare(before, sn *config.Snapshot) {
	if before == nil || !config.Same(before, sn, config.Filters) {
		w.filters.Keep(config.List(sn, config.Filters, ""))
	}
	if before == nil || !config.Same(before, sn, config.Mutators) {
		w.filters.KeepMutators(config.List(sn, config.Mutators, ""))
	}
}

// Failed counts and logs why an event, or a delivery, does not get to a route's handler.
func (w *Workflows) Failed(rt *Route, step string, err error) {
	w.metrics.errors.WithLabelValues(step).Inc()
	w.logOnce(rt, err)
}

// Undecodable counts an event that cannot be decoded, and logs it.
func (w *Workflows) Undecodable(namespace, entity, check string, err error) {
	w.metrics.errors.WithLabelValues("decode").Inc()
	w.rare.Error("event cannot be handled", namespace, "namespace", namespace, "entity", entity, "check", check, "err", err)
}

// logOnce logs why an event did not get to a handler, once for each reason until the definition changes that names it.
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

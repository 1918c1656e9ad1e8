// Package aggregate computes checks from other checks: 30% of a rack failing, fewer than two good replicas of a
// database, a business service that is as healthy as its parts.
//
// An aggregate (resource.Aggregate) selects events and says at which share or number of failing ones it warns. Runner,
// which package backend starts, evaluates each in its interval over the newest events, which state answers from memory,
// and submits the result as an event of a proxy entity. From there on it is an ordinary event: history, silences,
// handlers and dependencies are up to the other parts, and other aggregates may select it.
//
// Runner keeps nothing between evaluations: an aggregate's earlier results are the events with its name in a label. So
// a result whose last member or whose aggregate is gone is resolved and removed after a restart too. The API calls
// Evaluate to show a draft's results.
package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/computed"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Options configures a Runner. Config, State and Intake are required.
type Options struct {
	Config *config.Store
	State  computed.Reader
	Intake computed.Intake
	// Limit selects the events that an aggregate may have as members, nil for all of its namespace. It fails if there
	// are none, and says why. It is called for each evaluation. Default: all.
	Limit func(def *resource.Aggregate) (*selector.Selector, error)
	// Acts reports whether this backend evaluates an aggregate. Default: it evaluates all.
	Acts func(namespace, name string) bool
	// MaxGroups bounds the results of an aggregate. An aggregate with more is not evaluated. Default 1000.
	MaxGroups int
	// Timeout bounds an evaluation including its submissions. Default 30 s.
	Timeout    time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Runner evaluates the aggregates, one at a time.
type Runner struct {
	runner  *computed.Runner
	opts    Options
	metrics metrics
	source  source
}

type metrics struct {
	evaluations *prometheus.CounterVec
	seconds     prometheus.Histogram
	forbidden   prometheus.Gauge
	authorless  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_aggregate_evaluations_total",
			Help: "Evaluations of aggregates, by result: ok, or failed because members could not be read or results not " +
				"written."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_aggregate_evaluate_seconds", Help: "Evaluating one aggregate and writing its results.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}),
		forbidden: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_aggregates_forbidden",
			Help: "Aggregates whose results are unknown because their author may not list events, or is no user any more."}),
		authorless: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_aggregates_authorless",
			Help: "Aggregates from before their authors were kept, which have all events of their namespace as members."}),
	}
	for _, result := range []string{"ok", "failed"} {
		m.evaluations.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.evaluations, m.seconds, m.forbidden, m.authorless)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Runner, error) {
	if opts.Config == nil || opts.State == nil || opts.Intake == nil {
		return nil, errors.New("aggregate: config, state and intake are required")
	}
	return newRunner(opts, &events{computed.State{Reader: opts.State}, opts.Config})
}

func newRunner(opts Options, from source) (*Runner, error) {
	if opts.MaxGroups < 0 || opts.Timeout < 0 {
		return nil, errors.New("aggregate: MaxGroups and Timeout must not be negative")
	}
	if opts.Limit == nil {
		opts.Limit = func(*resource.Aggregate) (*selector.Selector, error) { return nil, nil }
	}
	if opts.Acts == nil {
		opts.Acts = func(string, string) bool { return true }
	}
	if opts.MaxGroups == 0 {
		opts.MaxGroups = 1000
	}
	if opts.Timeout == 0 {
		opts.Timeout = 30 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{opts: opts, metrics: newMetrics(opts.Registerer), source: from}
	var err error
	r.runner, err = computed.New(computed.Options{
		Component: "aggregate", Kind: "aggregate", Deleted: "the aggregate was deleted",
		Label: resource.AggregateLabel, Annotation: resource.AggregateAnnotation,
		Definitions: r.definitions, OnChange: from.onChange, Source: from, Intake: opts.Intake, Acts: opts.Acts,
		Concurrent: 1, Timeout: opts.Timeout, Report: r.count,
		Logger: opts.Logger, Evaluations: r.metrics.evaluations, Seconds: r.metrics.seconds,
	})
	return r, err
}

// Start evaluates all aggregates once and then each in its interval, until Stop.
func (r *Runner) Start(ctx context.Context) error { return r.runner.Start(ctx) }

// Stop cancels the running evaluation and waits for it.
func (r *Runner) Stop() error { return r.runner.Stop() }

// definitions returns the aggregates. Each parses its selectors once.
func (r *Runner) definitions() []computed.Definition {
	var out []computed.Definition
	for _, def := range r.source.definitions() {
		parsed := sync.OnceValues(func() (*query, error) {
			q, err := newQuery(def)
			if err == nil {
				if odd := q.check(); odd != nil { // the API refuses it now
					r.opts.Logger.Warn("a stored aggregate has a selector that matches nothing", "namespace", def.Metadata.Namespace,
						"aggregate", def.Metadata.Name, "err", odd)
				}
			}
			return q, err
		})
		out = append(out, computed.Definition{
			Name: resource.NameOf(&def.Metadata), Interval: def.Interval, Of: def,
			Evaluate: func(ctx context.Context) error {
				q, err := parsed()
				if err != nil {
					return err
				}
				return r.update(ctx, q)
			},
		})
	}
	return out
}

// count sets the gauges of aggregates.
func (r *Runner) count(all []computed.Status) {
	var forbidden, authorless float64
	for _, s := range all {
		if errors.Is(s.Err, errForbidden) {
			forbidden++
		}
		if s.Of.(*resource.Aggregate).Author == nil {
			authorless++
		}
	}
	r.metrics.forbidden.Set(forbidden)
	r.metrics.authorless.Set(authorless)
}

// errForbidden says that an aggregate's author may not list events.
var errForbidden = errors.New("the aggregate has no members")

// limit selects the events that an aggregate may have as members.
func (r *Runner) limit(def *resource.Aggregate) (*selector.Selector, error) {
	limit, err := r.opts.Limit(def)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForbidden, err)
	}
	return limit, nil
}

// update evaluates an aggregate and submits its results. Results that it no longer has are resolved and removed.
func (r *Runner) update(ctx context.Context, q *query) error {
	own, err := r.source.Find(ctx, q.def.Metadata.Namespace, q.own)
	if err != nil {
		return fmt.Errorf("find earlier results: %w", err)
	}
	limit, err := r.limit(q.def)
	if err != nil {
		return errors.Join(err, r.runner.Unknown(ctx, own, err))
	}
	results, err := r.evaluate(ctx, q, limit)
	if err != nil {
		return err
	}
	earlier, present := map[state.Key]bool{}, map[state.Key]bool{}
	for _, k := range own {
		earlier[k] = true
	}
	var refused []error
	var events []*resource.Event
	for i := range results {
		k := state.Key{Namespace: q.def.Metadata.Namespace, Entity: results[i].Entity, Check: results[i].Check}
		present[k] = true
		if limit != nil && !earlier[k] {
			if err := r.mayReplace(k, limit); err != nil {
				if len(refused) < 3 {
					refused = append(refused, err)
				}
				continue
			}
		}
		events = append(events, r.resultEvent(q.def, &results[i]))
	}
	gone := slices.DeleteFunc(own, func(k state.Key) bool { return present[k] })
	return errors.Join(errors.Join(refused...), r.runner.Submit(ctx, events),
		r.runner.RetireAll(ctx, gone, "there are no members any more"))
}

// mayReplace refuses to replace an event, or to create one for an entity, that the aggregate's author cannot access.
func (r *Runner) mayReplace(k state.Key, limit *selector.Selector) error {
	ev, err := r.source.Event(k)
	switch {
	case errors.Is(err, state.ErrNotFound):
		cfg, ok := r.source.entity(k.Namespace, k.Entity)
		if ok && !limit.Match(selector.Resource(cfg)) { // the event would show the entity and alert about it
			return fmt.Errorf("entity %s is not the author's: name another entity in result", k.Entity)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read event %s/%s: %w", k.Entity, k.Check, err)
	case limit.Match(selector.Event(ev)):
		return nil
	}
	return fmt.Errorf("event %s/%s exists and is not the author's: name another entity or check in result", k.Entity,
		k.Check)
}

// resultEvent returns a result as an event.
func (r *Runner) resultEvent(def *resource.Aggregate, res *resource.AggregateEvaluation) *resource.Event {
	var labels map[string]string
	if def.GroupBy != "" {
		labels = map[string]string{resource.AggregateGroupLabel: res.Group}
	}
	return r.runner.NewEvent(resource.NameOf(&def.Metadata), def.Interval, &def.Result, &computed.Result{
		Entity: res.Entity, Check: res.Check, Status: res.Status, Output: res.Output, Labels: labels,
		Figures: res.AggregateCount,
	})
}

// statusOf returns an aggregate's status and its output line.
func statusOf(def *resource.Aggregate, c *resource.AggregateCount) (status uint32, line string) {
	line = fmt.Sprintf("%d of %d failing (%.1f%%)", c.Failing, c.Members, c.Percent)
	if c.Group != "" {
		line = c.Group + ": " + line
	}
	switch {
	case c.Members < int(def.MinMembers):
		status = 3
		if def.FewStatus != nil {
			status = *def.FewStatus
		}
		return status, line + fmt.Sprintf(", fewer than %d members", def.MinMembers)
	case def.Critical.Reached(c.Failing, c.Members):
		return 2, line + ", critical " + describe(def.Critical)
	case def.Warning.Reached(c.Failing, c.Members):
		return 1, line + ", warning " + describe(def.Warning)
	}
	return 0, line
}

func describe(t *resource.AggregateThreshold) string {
	var parts []string
	if t.Percent > 0 {
		parts = append(parts, fmt.Sprintf("from %g%%", t.Percent))
	}
	if t.Count > 0 {
		parts = append(parts, fmt.Sprintf("from %d", t.Count))
	}
	return strings.Join(parts, " or ")
}

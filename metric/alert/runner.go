// Package alert turns stored metrics into events: checks whose source is a Graphite or PromQL expression.
//
// A metric check (resource.MetricCheck) has an expression, thresholds, and times for which a series must be beyond a
// threshold, or back, until that counts. Runner, which package backend starts, evaluates each in its interval and
// submits the results as events. From there on they are ordinary events: history, silences, handlers and dependencies
// are up to the other parts. In a cluster each metric check has one member that evaluates it.
//
// Runner keeps nothing between evaluations. What a series was at the moments before follows from its values (timeline);
// which entities had a result follows from the events with the metric check's name in a label. Preview is the same
// computation over hours.
package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/computed"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// Options configures a Runner. Config, State, Intake and Query are required.
type Options struct {
	Config *config.Store
	State  computed.Reader
	Intake computed.Intake
	// Query evaluates a metric check's expression over (from, until], in Unix seconds, among the series that the
	// definition's author may see. For PromQL there is a value each def.Interval seconds, counted back from until.
	Query func(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]Series, error)
	// Acts reports whether this backend evaluates a metric check. Default: it evaluates all.
	Acts func(namespace, name string) bool
	// MaxResults bounds the entities of a metric check. One with more fails. Default 1000.
	MaxResults int
	// Timeout bounds an evaluation with its submissions. Default 10 s.
	Timeout    time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// evaluating and previewing are how many evaluations and previews run at a time.
const (
	evaluating = 4
	previewing = 2
)

// defaultAbsentFor is how long a series may be absent until its event is removed.
const defaultAbsentFor = 24 * time.Hour

// Runner evaluates the metric checks, several at a time, each one at a time.
type Runner struct {
	runner   *computed.Runner
	opts     Options
	metrics  metrics
	source   source
	previews chan struct{} // previews that run
}

// source provides definitions and events; tests have their own.
type source interface {
	computed.Source
	definitions() []*resource.MetricCheck
	onChange(f func()) (cancel func())
}

// events is the source of a backend.
type events struct {
	computed.State
	config *config.Store
}

func (e *events) definitions() []*resource.MetricCheck {
	return slices.Collect(config.List(e.config.Snapshot(), config.MetricChecks, ""))
}

func (e *events) onChange(f func()) (cancel func()) {
	return e.config.OnChange(func(c config.Change) {
		if c.Kind == config.MetricChecks.String() {
			f()
		}
	})
}

type metrics struct {
	evaluations *prometheus.CounterVec
	seconds     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_metric_check_evaluations_total",
			Help: "Evaluations of metric checks, by result: ok, or failed because the expression could not be evaluated or results not written."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_metric_check_evaluate_seconds", Help: "Evaluating one metric check and writing its results.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}),
	}
	for _, result := range []string{"ok", "failed"} {
		m.evaluations.WithLabelValues(result)
	}
	if r != nil {
		r.MustRegister(m.evaluations, m.seconds)
	}
	return m
}

// New checks the options.
func New(opts Options) (*Runner, error) {
	if opts.Config == nil || opts.State == nil || opts.Intake == nil || opts.Query == nil {
		return nil, errors.New("metric checks: config, state, intake and query are required")
	}
	return newRunner(opts, &events{computed.State{Reader: opts.State}, opts.Config})
}

func newRunner(opts Options, from source) (*Runner, error) {
	if opts.MaxResults < 0 || opts.Timeout < 0 {
		return nil, errors.New("metric checks: MaxResults and Timeout must not be negative")
	}
	opts.MaxResults = cmp.Or(opts.MaxResults, 1000)
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Second)
	if opts.Acts == nil {
		opts.Acts = func(string, string) bool { return true }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{opts: opts, metrics: newMetrics(opts.Registerer), source: from, previews: make(chan struct{}, previewing)}
	var err error
	r.runner, err = computed.New(computed.Options{
		Component: "metric checks", Kind: "metric_check", Deleted: "the metric check was deleted",
		Label: resource.MetricCheckLabel, Annotation: resource.MetricCheckAnnotation,
		Definitions: r.definitions, OnChange: from.onChange, Source: from, Intake: opts.Intake, Acts: opts.Acts,
		Concurrent: evaluating, Timeout: opts.Timeout,
		Logger: opts.Logger, Evaluations: r.metrics.evaluations, Seconds: r.metrics.seconds,
	})
	return r, err
}

func (r *Runner) definitions() []computed.Definition {
	var out []computed.Definition
	for _, def := range r.source.definitions() {
		out = append(out, computed.Definition{
			Name: resource.NameOf(&def.Metadata), Interval: def.Interval, Of: def,
			Evaluate: func(ctx context.Context) error { return r.update(ctx, def) },
		})
	}
	return out
}

// Start evaluates each metric check in its interval, until Stop.
func (r *Runner) Start(ctx context.Context) error { return r.runner.Start(ctx) }

// Stop cancels the running evaluations and waits for them.
func (r *Runner) Stop() error { return r.runner.Stop() }

// Preview returns what a metric check would have done between from and until, in Unix seconds. It submits nothing.
func (r *Runner) Preview(ctx context.Context, def *resource.MetricCheck, from,
	until int64) (*resource.MetricPreview, error) {
	if from > until {
		return nil, errors.New("the beginning is after the end")
	}
	if n := (until-from)/int64(def.Interval) + 1; n > maxMoments {
		return nil, fmt.Errorf("a preview has at most %d evaluations, and these are %d: choose a shorter time or a longer interval", maxMoments, n)
	}
	select {
	case r.previews <- struct{}{}:
		defer func() { <-r.previews }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	findings, err := r.find(ctx, def, from, until)
	if err != nil {
		return nil, err
	}
	p := &resource.MetricPreview{From: from, Until: until, Findings: findings}
	for i := range findings {
		before := uint32(0)
		for _, c := range findings[i].Changes {
			if before == 0 && c.Status != 0 {
				p.Fired++
			}
			before = c.Status
		}
	}
	if p.Findings == nil {
		p.Findings = []resource.MetricFinding{}
	}
	return p, nil
}

// find evaluates the expression and compares its series with the thresholds.
func (r *Runner) find(ctx context.Context, def *resource.MetricCheck, from,
	until int64) ([]resource.MetricFinding, error) {
	moments := momentsOf(def, from, until)
	all, err := r.opts.Query(ctx, def, moments[0]-def.WindowSeconds(), until)
	if err != nil {
		return nil, fmt.Errorf("evaluate %s: %w", def.Expr, err)
	}
	all = slices.DeleteFunc(all, func(s Series) bool { return !s.known() })
	if n := len(all) * len(moments); n > maxLevels {
		return nil, fmt.Errorf("%d series at %d moments are too many: select fewer series, or choose a longer interval",
			len(all), len(moments))
	}
	findings, err := evaluate(ctx, def, all, from, until)
	if err != nil {
		return nil, err
	}
	if len(findings) == 0 && oneEntity(def) {
		f := absentFinding(def, def.EntityName(), until)
		if from < until {
			f.Changes = []resource.MetricStatusChange{{At: from, Status: f.Status}}
		}
		findings = append(findings, f)
	}
	if len(findings) > r.opts.MaxResults {
		return nil, fmt.Errorf("the series are of %d entities, more than %d: select fewer, or aggregate them", len(findings),
			r.opts.MaxResults)
	}
	return findings, nil
}

// oneEntity reports whether all series of a metric check are about one entity, which it names.
func oneEntity(def *resource.MetricCheck) bool { return def.EntityNode == nil && def.EntityLabel == "" }

// known reports whether a series has a value at all.
func (s *Series) known() bool {
	return slices.ContainsFunc(s.Values, func(v float64) bool { return v == v })
}

// update evaluates a metric check and submits its results.
func (r *Runner) update(ctx context.Context, def *resource.MetricCheck) error {
	mine, err := r.runner.Own(def.Metadata.Name)
	if err != nil {
		return err
	}
	own, err := r.source.Find(ctx, def.Metadata.Namespace, mine)
	if err != nil {
		return fmt.Errorf("find earlier results: %w", err)
	}
	now := time.Now().Unix()
	findings, err := r.find(ctx, def, now, now)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return err // the runner stops
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // the evaluation may have used up its time
		defer cancel()
		return errors.Join(err, r.runner.Unknown(ctx, own, err))
	}
	present := map[state.Key]bool{}
	for i := range findings {
		present[keyOf(def, &findings[i])] = true
	}
	var gone []state.Key
	for _, k := range own {
		if present[k] {
			continue
		}
		if finding, over := r.absent(def, k, now); over {
			gone = append(gone, k)
		} else if finding != nil {
			findings = append(findings, *finding)
		}
	}
	events := make([]*resource.Event, 0, len(findings))
	for i := range findings {
		events = append(events, r.resultEvent(def, &findings[i]))
	}
	return errors.Join(r.runner.RetireAll(ctx, gone, "the series have had no values for too long"),
		r.runner.Submit(ctx, events))
}

func keyOf(def *resource.MetricCheck, f *resource.MetricFinding) state.Key {
	return state.Key{Namespace: def.Metadata.Namespace, Entity: f.Entity, Check: f.Check}
}

// absent returns the finding for an earlier result whose series have no values now, or that it has been so for too
// long.
func (r *Runner) absent(def *resource.MetricCheck, k state.Key,
	now int64) (finding *resource.MetricFinding, gone bool) {
	ev, err := r.source.Event(k)
	if err != nil || !r.runner.Made(ev) {
		return nil, false
	}
	if k.Check != def.CheckName() {
		return nil, true // the definition names another check now
	}
	f := absentFinding(def, k.Entity, now)
	var before resource.MetricFinding
	if json.Unmarshal([]byte(ev.Metadata.Annotations[resource.MetricCheckAnnotation]), &before) == nil &&
		len(before.Series) > 0 {
		f.Series[0].Name = before.Series[0].Name
		if before.Series[0].Value == nil && before.Series[0].Since > 0 {
			f.Series[0].Since = before.Series[0].Since
		}
	}
	limit := time.Duration(def.AbsentFor) * time.Second
	if limit == 0 {
		limit = defaultAbsentFor
	}
	return &f, !oneEntity(def) && time.Duration(now-f.Series[0].Since)*time.Second > limit
}

func absentFinding(def *resource.MetricCheck, entity string, now int64) resource.MetricFinding {
	return resource.MetricFinding{
		Entity: entity, Check: def.CheckName(), Status: statusOf(def, unknown),
		Output: fmt.Sprintf("no values of %s for %v", def.Expr, time.Duration(def.WindowSeconds())*time.Second),
		Series: []resource.MetricFindingSeries{{Name: def.Expr, Since: now}},
	}
}

// resultEvent returns a finding as an event.
func (r *Runner) resultEvent(def *resource.MetricCheck, f *resource.MetricFinding) *resource.Event {
	kept := *f
	kept.Changes = nil
	return r.runner.NewEvent(resource.NameOf(&def.Metadata), def.Interval, &def.Result, &computed.Result{
		Entity: f.Entity, Check: f.Check, Status: f.Status, Output: f.Output, Figures: kept,
	})
}

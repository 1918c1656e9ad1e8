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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// State reads events. *state.State is one.
type State interface {
	Select(ctx context.Context, query state.Query) (*state.Page, error)
	Event(namespace, entity, check string) (*resource.Event, error)
}

// Intake takes the results. *intake.Intake is one.
type Intake interface {
	Submit(ctx context.Context, ev *resource.Event) error
	DeleteEvent(ctx context.Context, namespace, entity, check string) error
}

// Options configures a Runner. Config, State and Intake are required.
type Options struct {
	Config *config.Store
	State  State
	Intake Intake
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

// submitting is how many results of an aggregate are submitted at a time: each waits until it is durable.
const submitting = 16

// Runner evaluates the aggregates, one at a time.
type Runner struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for messages that may come with each evaluation
	metrics metrics
	source  source
	wake    chan struct{} // definitions have changed

	mu       sync.Mutex // guards the fields below
	cancel   context.CancelFunc
	unlisten func()
	done     chan struct{}
	stopped  bool
}

type metrics struct {
	evaluations *prometheus.CounterVec
	seconds     prometheus.Histogram
	forbidden   prometheus.Gauge
	authorless  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_aggregate_evaluations_total", Help: "Evaluations of aggregates, by result: ok, or failed because members could not be read or results not written."}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_aggregate_evaluate_seconds", Help: "Evaluating one aggregate and writing its results.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}),
		forbidden:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_aggregates_forbidden", Help: "Aggregates whose results are unknown because their author may not list events, or is no user any more."}),
		authorless: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapwing_aggregates_authorless", Help: "Aggregates from before their authors were kept, which have all events of their namespace as members."}),
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
	return newRunner(opts, &events{opts.Config, opts.State})
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
	return &Runner{
		opts: opts, log: opts.Logger.With("component", "aggregate"), rare: rarelog.New(opts.Logger.With("component", "aggregate")), metrics: newMetrics(opts.Registerer), source: from,
		wake: make(chan struct{}, 1),
	}, nil
}

// Start evaluates all aggregates once and then each in its interval, until Stop.
func (r *Runner) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil || r.stopped {
		return errors.New("start aggregates: started or stopped before")
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.unlisten = r.source.onChange(func() {
		select {
		case r.wake <- struct{}{}:
		default: // a wake-up is pending already
		}
	})
	r.done = make(chan struct{})
	go r.run(ctx)
	return nil
}

// Stop cancels the running evaluation and waits for it.
func (r *Runner) Stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.cancel == nil || r.unlisten == nil {
		return nil
	}
	r.unlisten()
	r.cancel()
	<-r.done
	r.unlisten = nil
	return nil
}

// job is an aggregate and when it is due next.
type job struct {
	*query
	due       time.Time
	failed    bool // the last evaluation failed, so that it is logged once
	forbidden bool // because its author may not list events
}

func (r *Runner) run(ctx context.Context) {
	defer close(r.done)
	jobs := map[resource.Name]*job{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	r.refresh(jobs)
	r.sweep(ctx, jobs)
	for {
		timer.Reset(r.runDue(ctx, jobs))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
			if r.refresh(jobs) {
				r.sweep(ctx, jobs)
			}
		}
	}
}

// idle is how long the runner sleeps while there are no aggregates.
const idle = time.Hour

// runDue evaluates the due aggregates, earliest first, and returns the time until the next one.
func (r *Runner) runDue(ctx context.Context, jobs map[resource.Name]*job) time.Duration {
	now := time.Now()
	var due []*job
	for _, j := range jobs {
		if !j.due.After(now) {
			due = append(due, j)
		}
	}
	slices.SortFunc(due, func(a, b *job) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.def.Metadata.Name, b.def.Metadata.Name))
	})
	for _, j := range due {
		if ctx.Err() != nil {
			return 0
		}
		r.runOne(ctx, j)
		interval := time.Duration(j.def.Interval) * time.Second
		if j.due = j.due.Add(interval); j.due.Before(time.Now()) {
			j.due = time.Now().Add(interval) // missed evaluations are skipped
		}
	}
	r.count(jobs)
	wait := idle
	for _, j := range jobs {
		wait = min(wait, max(0, time.Until(j.due)))
	}
	return wait
}

// count sets the gauges of aggregates.
func (r *Runner) count(jobs map[resource.Name]*job) {
	var forbidden, authorless float64
	for _, j := range jobs {
		if j.forbidden {
			forbidden++
		}
		if j.def.Author == nil {
			authorless++
		}
	}
	r.metrics.forbidden.Set(forbidden)
	r.metrics.authorless.Set(authorless)
}

func (r *Runner) runOne(ctx context.Context, j *job) {
	if !r.opts.Acts(j.def.Metadata.Namespace, j.def.Metadata.Name) {
		return
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	err := r.update(ctx, j.query)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // stopped
	}
	r.metrics.seconds.Observe(time.Since(begin).Seconds())
	j.forbidden = errors.Is(err, errForbidden)
	if err == nil {
		r.metrics.evaluations.WithLabelValues("ok").Inc()
		j.failed = false
		return
	}
	r.metrics.evaluations.WithLabelValues("failed").Inc()
	if !j.failed {
		r.rare.Error("aggregate has no result", j.def.Metadata.Namespace+"/"+j.def.Metadata.Name, "namespace", j.def.Metadata.Namespace, "aggregate", j.def.Metadata.Name, "err", err)
	}
	j.failed = true
}

// refresh updates the jobs from the definitions. New and changed ones are due at once. gone says that a job was
// removed.
func (r *Runner) refresh(jobs map[resource.Name]*job) (gone bool) {
	now := time.Now()
	present := map[resource.Name]bool{}
	for _, def := range r.source.definitions() {
		k := resource.NameOf(&def.Metadata)
		present[k] = true
		if old, ok := jobs[k]; ok && old.def == def {
			continue
		}
		q, err := newQuery(def)
		if err != nil {
			r.rare.Error("aggregate cannot be evaluated", k.Namespace+"/"+k.Name, "namespace", k.Namespace, "aggregate", k.Name, "err", err)
			delete(jobs, k)
			continue
		}
		jobs[k] = &job{query: q, due: now}
	}
	for k := range jobs {
		if !present[k] {
			delete(jobs, k)
			gone = true
		}
	}
	return gone
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
	own, err := r.source.find(ctx, q.def.Metadata.Namespace, q.own)
	if err != nil {
		return fmt.Errorf("find earlier results: %w", err)
	}
	limit, err := r.limit(q.def)
	if err != nil {
		return errors.Join(err, r.unknown(ctx, own, err))
	}
	results, err := r.evaluate(ctx, q, limit)
	if err != nil {
		return err
	}
	earlier, present := map[state.Key]bool{}, map[state.Key]bool{}
	for _, k := range own {
		earlier[k] = true
	}
	var errs errorList
	var underWay sync.WaitGroup
	room := make(chan struct{}, submitting)
	for i := range results {
		k := state.Key{Namespace: q.def.Metadata.Namespace, Entity: results[i].Entity, Check: results[i].Check}
		present[k] = true
		if limit != nil && !earlier[k] {
			if err := r.mayReplace(k, limit); err != nil {
				errs.add(err)
				continue
			}
		}
		room <- struct{}{}
		underWay.Go(func() {
			errs.add(r.opts.Intake.Submit(ctx, resultEvent(q.def, &results[i], time.Now())))
			<-room
		})
	}
	underWay.Wait()
	for _, k := range own {
		if !present[k] {
			errs.add(r.retire(ctx, k, "there are no members any more"))
		}
	}
	return errs.joined()
}

// mayReplace refuses to replace an event, or to create one for an entity, that the aggregate's author cannot access.
func (r *Runner) mayReplace(k state.Key, limit *selector.Selector) error {
	ev, err := r.source.event(k)
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
	return fmt.Errorf("event %s/%s exists and is not the author's: name another entity or check in result", k.Entity, k.Check)
}

// unknown submits results of status unknown for an aggregate that cannot be evaluated any more: its last results would
// look current.
func (r *Runner) unknown(ctx context.Context, own []state.Key, why error) error {
	var errs errorList
	for _, k := range own {
		ev, err := r.source.event(k)
		if err != nil || !madeHere(ev) || ev.Check.Status == 3 {
			continue
		}
		errs.add(r.opts.Intake.Submit(ctx, follow(ev, 3, why.Error(), time.Now())))
	}
	return errs.joined()
}

// follow returns the event after an aggregate's last one.
func follow(last *resource.Event, status uint32, output string, now time.Time) *resource.Event {
	ev, check := *last, *last.Check
	ev.Check, ev.ID, ev.Timestamp = &check, resource.NewEventID(), now.Unix()
	check.Status, check.Output, check.Executed, check.Issued = status, output, now.Unix(), now.Unix()
	check.History, check.OccurrencesWatermark, check.LastOK = nil, 0, 0
	return &ev
}

// errorList collects the first errors of several goroutines.
type errorList struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && len(l.errs) < 3 {
		l.errs = append(l.errs, err)
	}
}

func (l *errorList) joined() error { return errors.Join(l.errs...) }

// sweep retires the results of aggregates that no longer exist.
func (r *Runner) sweep(ctx context.Context, jobs map[resource.Name]*job) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	found, err := r.source.find(ctx, "", anyResult)
	if err != nil {
		r.log.Error("cannot look for results of deleted aggregates", "err", err)
		return
	}
	for _, k := range found {
		ev, err := r.source.event(k)
		if err != nil || ev.Check == nil {
			continue // gone in the meantime
		}
		of := resource.Name{Namespace: k.Namespace, Name: ev.Check.Metadata.Labels[resource.AggregateLabel]}
		if _, ok := jobs[of]; ok || !madeHere(ev) || !r.opts.Acts(of.Namespace, of.Name) {
			continue
		}
		if err := r.retire(ctx, k, "the aggregate was deleted"); err != nil && ctx.Err() == nil {
			r.rare.Error("cannot remove the result of a deleted aggregate", k.Namespace, "namespace", k.Namespace, "entity",
				k.Entity, "check", k.Check, "err", err)
		}
	}
}

// madeHere reports whether an event is a result of an aggregate: any client can set the labels alone.
func madeHere(ev *resource.Event) bool {
	return ev.Metadata.Annotations[resource.AggregateAnnotation] != ""
}

// retire resolves a result that will not come again and removes it.
func (r *Runner) retire(ctx context.Context, k state.Key, why string) error {
	ev, err := r.source.event(k)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read result %s/%s: %w", k.Entity, k.Check, err)
	}
	if !madeHere(ev) {
		return nil
	}
	if ev.IsIncident() {
		if err := r.opts.Intake.Submit(ctx, follow(ev, 0, why, time.Now())); err != nil {
			return fmt.Errorf("resolve %s/%s: %w", k.Entity, k.Check, err)
		}
	}
	if err := r.opts.Intake.DeleteEvent(ctx, k.Namespace, k.Entity, k.Check); err != nil {
		return fmt.Errorf("remove %s/%s: %w", k.Entity, k.Check, err)
	}
	return nil
}

// resultEvent returns a result as an event.
func resultEvent(def *resource.Aggregate, res *resource.AggregateEvaluation, now time.Time) *resource.Event {
	labels := maps.Clone(def.Result.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[resource.AggregateLabel] = def.Metadata.Name
	if def.GroupBy != "" {
		labels[resource.AggregateGroupLabel] = res.Group
	}
	count, _ := json.Marshal(res.AggregateCount) // text and finite numbers cannot fail
	namespace := def.Metadata.Namespace
	return &resource.Event{
		Timestamp: now.Unix(), ID: resource.NewEventID(), Pipelines: def.Result.Pipelines,
		Metadata: resource.ObjectMeta{Namespace: namespace, Annotations: map[string]string{resource.AggregateAnnotation: string(count)}},
		Entity: &resource.Entity{
			EntityClass:   resource.EntityProxyClass,
			Subscriptions: []string{resource.EntitySubscription(res.Entity)},
			Metadata:      resource.ObjectMeta{Namespace: namespace, Name: res.Entity},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: namespace, Name: res.Check, Labels: labels, Annotations: def.Result.Annotations},
			Interval: def.Interval, Status: res.Status, Output: res.Output, Executed: now.Unix(), Issued: now.Unix(),
			Handlers: def.Result.Handlers, Pipelines: def.Result.Pipelines,
		},
	}
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

// Package alert turns stored metrics into events: checks whose source is a Graphite or PromQL expression.
//
// A metric check (resource.MetricCheck) has an expression, thresholds, and times for which a series must be beyond a
// threshold, or back, until that counts. Runner, which package backend starts, evaluates each in its interval and submits
// the results as events. From there on they are ordinary events: history, silences, handlers and dependencies are up to
// the other parts. In a cluster each metric check has one member that evaluates it.
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
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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

// Options configures a Runner. Config, State, Intake and Query are required.
type Options struct {
	Config *config.Store
	State  State
	Intake Intake
	// Query evaluates a metric check's expression over (from, until], in Unix seconds, among the series that the
	// definition's author may see. For PromQL there is a value each def.Interval seconds, counted back from until.
	Query func(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]Series, error)
	// Acts reports whether this backend evaluates a metric check. Default: it evaluates all.
	Acts func(namespace, name string) bool
	// MaxResults bounds the entities of a metric check. One with more fails. Default 1000.
	MaxResults int
	// Timeout bounds an evaluation with its submissions. Default 10 s.
	Timeout time.Duration
	// Now is the clock. Default: time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// evaluating and previewing are how many evaluations and previews run at a time.
const (
	evaluating = 4
	previewing = 2
)

// submitting is how many results of a metric check are submitted at a time: each waits until it is durable.
const submitting = 16

// defaultAbsentFor is how long a series may be absent until its event is removed.
const defaultAbsentFor = 24 * time.Hour

// Runner evaluates the metric checks, several at a time, each one at a time.
type Runner struct {
	slots    chan struct{} // evaluations that run
	previews chan struct{} // previews that run
	opts     Options
	log      *slog.Logger
	rare     *rarelog.Log // for messages that may come with each evaluation
	metrics  metrics
	wake     chan struct{} // definitions have changed

	mu       sync.Mutex // guards the fields below
	cancel   context.CancelFunc
	unlisten func()
	done     chan struct{}
	stopped  bool
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
	if opts.MaxResults < 0 || opts.Timeout < 0 {
		return nil, errors.New("metric checks: MaxResults and Timeout must not be negative")
	}
	opts.MaxResults = cmp.Or(opts.MaxResults, 1000)
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Second)
	if opts.Acts == nil {
		opts.Acts = func(string, string) bool { return true }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	log := opts.Logger.With("component", "metric checks")
	return &Runner{
		opts: opts, log: log, rare: rarelog.New(log), metrics: newMetrics(opts.Registerer), wake: make(chan struct{}, 1),
		slots: make(chan struct{}, evaluating), previews: make(chan struct{}, previewing),
	}, nil
}

// Start evaluates each metric check in its interval, until Stop.
func (r *Runner) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil || r.stopped {
		return errors.New("start metric checks: started or stopped before")
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.unlisten = r.opts.Config.OnChange(func(c config.Change) {
		if c.Kind != config.MetricChecks.String() {
			return
		}
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

// job is a metric check and when it is due next.
type job struct {
	def     *resource.MetricCheck
	due     time.Time
	running atomic.Bool
	failed  bool // the last evaluation failed, so that it is logged once; the running one has it
}

// idle is how long the runner sleeps while there are no metric checks.
const idle = time.Hour

func (r *Runner) run(ctx context.Context) {
	defer close(r.done)
	jobs := map[resource.Name]*job{}
	var underWay sync.WaitGroup
	defer underWay.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	r.refresh(jobs)
	r.sweep(ctx, jobs)
	for {
		timer.Reset(r.runDue(ctx, jobs, &underWay))
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

// busyWait is the time until the next look while all slots are taken.
const busyWait = 50 * time.Millisecond

// runDue begins the evaluation of the due metric checks, earliest first, and returns the time until the next look. One that
// still runs is skipped.
func (r *Runner) runDue(ctx context.Context, jobs map[resource.Name]*job, underWay *sync.WaitGroup) time.Duration {
	now := r.opts.Now()
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
		if !j.running.Load() {
			select {
			case r.slots <- struct{}{}:
			default:
				return busyWait
			}
			j.running.Store(true)
			underWay.Go(func() {
				r.runOne(ctx, j)
				j.running.Store(false)
				<-r.slots
			})
		}
		interval := time.Duration(j.def.Interval) * time.Second
		if j.due = j.due.Add(interval); j.due.Before(r.opts.Now()) {
			j.due = r.opts.Now().Add(interval) // missed evaluations are skipped
		}
	}
	wait := idle
	for _, j := range jobs {
		wait = min(wait, max(0, j.due.Sub(r.opts.Now())))
	}
	return wait
}

func (r *Runner) runOne(ctx context.Context, j *job) {
	if !r.opts.Acts(j.def.Metadata.Namespace, j.def.Metadata.Name) {
		return
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	err := r.update(ctx, j.def)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // stopped
	}
	r.metrics.seconds.Observe(time.Since(begin).Seconds())
	if err == nil {
		r.metrics.evaluations.WithLabelValues("ok").Inc()
		j.failed = false
		return
	}
	r.metrics.evaluations.WithLabelValues("failed").Inc()
	if !j.failed {
		name := resource.NameOf(&j.def.Metadata)
		r.rare.Error("metric check has no result", name.Namespace+"/"+name.Name, "namespace", name.Namespace, "metric_check", name.Name, "err", err)
	}
	j.failed = true
}

// refresh updates the jobs from the definitions. New and changed ones are due at once. gone says that a job was removed.
func (r *Runner) refresh(jobs map[resource.Name]*job) (gone bool) {
	now := r.opts.Now()
	present := map[resource.Name]bool{}
	for def := range config.List(r.opts.Config.Snapshot(), config.MetricChecks, "") {
		k := resource.NameOf(&def.Metadata)
		present[k] = true
		if old, ok := jobs[k]; !ok || old.def != def {
			jobs[k] = &job{def: def, due: now}
		}
	}
	for k := range jobs {
		if !present[k] {
			delete(jobs, k)
			gone = true
		}
	}
	return gone
}

// Preview returns what a metric check would have done between from and until, in Unix seconds. It submits nothing.
func (r *Runner) Preview(ctx context.Context, def *resource.MetricCheck, from, until int64) (*resource.MetricPreview, error) {
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
func (r *Runner) find(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]resource.MetricFinding, error) {
	moments := momentsOf(def, from, until)
	all, err := r.opts.Query(ctx, def, moments[0]-def.WindowSeconds(), until)
	if err != nil {
		return nil, fmt.Errorf("evaluate %s: %w", def.Expr, err)
	}
	all = slices.DeleteFunc(all, func(s Series) bool { return !s.known() })
	if n := len(all) * len(moments); n > maxLevels {
		return nil, fmt.Errorf("%d series at %d moments are too many: select fewer series, or choose a longer interval", len(all), len(moments))
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
		return nil, fmt.Errorf("the series are of %d entities, more than %d: select fewer, or aggregate them", len(findings), r.opts.MaxResults)
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
	own, err := r.results(ctx, def.Metadata.Namespace, fmt.Sprintf("%s == %q", resource.MetricCheckLabel, def.Metadata.Name))
	if err != nil {
		return fmt.Errorf("find earlier results: %w", err)
	}
	now := r.opts.Now().Unix()
	findings, err := r.find(ctx, def, now, now)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return err // the runner stops
		}
		return errors.Join(err, r.unknown(ctx, own, err))
	}
	present := map[state.Key]bool{}
	for i := range findings {
		present[keyOf(def, &findings[i])] = true
	}
	var errs errorList
	for _, k := range own {
		if present[k] {
			continue
		}
		if finding, gone := r.absent(def, k, now); gone {
			errs.add(r.retire(ctx, k, "the series have had no values for too long"))
		} else if finding != nil {
			findings = append(findings, *finding)
			present[k] = true
		}
	}
	var underWay sync.WaitGroup
	room := make(chan struct{}, submitting)
	for i := range findings {
		room <- struct{}{}
		underWay.Go(func() {
			errs.add(r.opts.Intake.Submit(ctx, resultEvent(def, &findings[i], now)))
			<-room
		})
	}
	underWay.Wait()
	return errs.joined()
}

func keyOf(def *resource.MetricCheck, f *resource.MetricFinding) state.Key {
	return state.Key{Namespace: def.Metadata.Namespace, Entity: f.Entity, Check: f.Check}
}

// absent returns the finding for an earlier result whose series have no values now, or that it has been so for too long.
func (r *Runner) absent(def *resource.MetricCheck, k state.Key, now int64) (finding *resource.MetricFinding, gone bool) {
	ev, err := r.opts.State.Event(k.Namespace, k.Entity, k.Check)
	if err != nil || !madeHere(ev) {
		return nil, false
	}
	if k.Check != def.CheckName() {
		return nil, true // the definition names another check now
	}
	f := absentFinding(def, k.Entity, now)
	var before resource.MetricFinding
	if json.Unmarshal([]byte(ev.Metadata.Annotations[resource.MetricCheckAnnotation]), &before) == nil && len(before.Series) > 0 {
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

// unknown submits results of status unknown for a metric check that cannot be evaluated: its last results would look
// current.
func (r *Runner) unknown(ctx context.Context, own []state.Key, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // the evaluation may have used up its time
	defer cancel()
	var errs errorList
	for _, k := range own {
		ev, err := r.opts.State.Event(k.Namespace, k.Entity, k.Check)
		if err != nil || !madeHere(ev) || ev.Check.Status == 3 {
			continue
		}
		errs.add(r.opts.Intake.Submit(ctx, follow(ev, 3, why.Error(), r.opts.Now())))
	}
	return errs.joined()
}

// follow returns the event after a metric check's last one.
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

// results returns the keys of events that a label selector selects.
func (r *Runner) results(ctx context.Context, namespace, labels string) ([]state.Key, error) {
	chosen, err := selector.Parse(labels, "")
	if err != nil {
		return nil, err
	}
	page, err := r.opts.State.Select(ctx, state.Query{Namespace: namespace, Selector: chosen})
	if err != nil {
		return nil, err
	}
	return slices.AppendSeq(make([]state.Key, 0, page.Len()), page.Keys()), nil
}

// sweep retires the results of metric checks that no longer exist.
func (r *Runner) sweep(ctx context.Context, jobs map[resource.Name]*job) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	found, err := r.results(ctx, "", resource.MetricCheckLabel+` =~ ""`)
	if err != nil {
		r.log.Error("cannot look for results of deleted metric checks", "err", err)
		return
	}
	for _, k := range found {
		ev, err := r.opts.State.Event(k.Namespace, k.Entity, k.Check)
		if err != nil || ev.Check == nil {
			continue // gone in the meantime
		}
		of := resource.Name{Namespace: k.Namespace, Name: ev.Check.Metadata.Labels[resource.MetricCheckLabel]}
		if _, ok := jobs[of]; ok || !madeHere(ev) || !r.opts.Acts(of.Namespace, of.Name) {
			continue
		}
		if err := r.retire(ctx, k, "the metric check was deleted"); err != nil && ctx.Err() == nil {
			r.rare.Error("cannot remove the result of a deleted metric check", k.Namespace, "namespace", k.Namespace, "entity",
				k.Entity, "check", k.Check, "err", err)
		}
	}
}

// madeHere reports whether an event is a result of a metric check: any client can set the labels alone.
func madeHere(ev *resource.Event) bool {
	return ev.Check != nil && ev.Metadata.Annotations[resource.MetricCheckAnnotation] != ""
}

// retire resolves a result that will not come again and removes it.
func (r *Runner) retire(ctx context.Context, k state.Key, why string) error {
	ev, err := r.opts.State.Event(k.Namespace, k.Entity, k.Check)
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
		if err := r.opts.Intake.Submit(ctx, follow(ev, 0, why, r.opts.Now())); err != nil {
			return fmt.Errorf("resolve %s/%s: %w", k.Entity, k.Check, err)
		}
	}
	if err := r.opts.Intake.DeleteEvent(ctx, k.Namespace, k.Entity, k.Check); err != nil {
		return fmt.Errorf("remove %s/%s: %w", k.Entity, k.Check, err)
	}
	return nil
}

// resultEvent returns a finding as an event.
func resultEvent(def *resource.MetricCheck, f *resource.MetricFinding, now int64) *resource.Event {
	labels := maps.Clone(def.Result.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[resource.MetricCheckLabel] = def.Metadata.Name
	kept := *f
	kept.Changes = nil
	finding, _ := json.Marshal(kept) // text and finite numbers cannot fail
	namespace := def.Metadata.Namespace
	return &resource.Event{
		Timestamp: now, ID: resource.NewEventID(), Pipelines: def.Result.Pipelines,
		Metadata: resource.ObjectMeta{Namespace: namespace, Annotations: map[string]string{resource.MetricCheckAnnotation: string(finding)}},
		Entity: &resource.Entity{
			EntityClass:   resource.EntityProxyClass,
			Subscriptions: []string{resource.EntitySubscription(f.Entity)},
			Metadata:      resource.ObjectMeta{Namespace: namespace, Name: f.Entity},
		},
		Check: &resource.Check{
			Metadata: resource.ObjectMeta{Namespace: namespace, Name: f.Check, Labels: labels, Annotations: def.Result.Annotations},
			Interval: def.Interval, Status: f.Status, Output: f.Output, Executed: now, Issued: now,
			Handlers: def.Result.Handlers, Pipelines: def.Result.Pipelines,
		},
	}
}

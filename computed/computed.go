// Package computed runs definitions whose events the backend computes itself: aggregates and checks on metrics.
//
// Packages aggregate and metric/alert give a Runner their definitions and a function that evaluates one. The Runner
// evaluates each in its interval, on the member of a cluster that acts for it, and a definition is never evaluated
// twice at the same time. The function submits its events with NewEvent and the Runner's methods, and they are marked
// with the definition's name in a label. So the Runner keeps nothing: it finds a definition's earlier events by the
// label, after a restart too, and resolves and removes those of deleted definitions.
package computed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// Definition says what to evaluate, and how often.
type Definition struct {
	Name     resource.Name
	Interval uint32 // seconds
	// Of is the resource, a pointer. If a later one is not equal, the definition has changed.
	Of any
	// Evaluate submits the results.
	Evaluate func(ctx context.Context) error
}

// Status is a definition with the error of its last evaluation here.
type Status struct {
	Of  any
	Err error
}

// Options configures a Runner. All fields but Report are required.
type Options struct {
	// Component and Kind are the part and a definition in the log; Kind has underscores.
	Component, Kind string
	// Deleted is the output of the last event of a deleted definition.
	Deleted string
	// Label of the check and Annotation of the event mark the events. The value of Label is the definition's name.
	Label, Annotation string
	// Definitions returns all definitions, and OnChange has its argument called after changes of them.
	Definitions func() []Definition
	OnChange    func(f func()) (cancel func())
	Source      Source
	Intake      Intake
	// Acts reports whether this backend evaluates a definition.
	Acts func(namespace, name string) bool
	// Concurrent is how many definitions are evaluated at a time.
	Concurrent int
	// Timeout bounds an evaluation with its submissions.
	Timeout time.Duration
	// Report gets all definitions after evaluations and changes. It must not block.
	Report func(all []Status)
	Logger *slog.Logger
	// Evaluations counts by the label result, ok or failed. Seconds observes evaluations.
	Evaluations *prometheus.CounterVec
	Seconds     prometheus.Histogram
}

// Runner evaluates definitions.
type Runner struct {
	opts  Options
	log   *slog.Logger
	rare  *rarelog.Log       // for messages that may come with each evaluation
	all   *selector.Selector // events of all definitions
	wake  chan struct{}      // definitions have changed
	ended chan outcome       // it has room for all evaluations that run

	mu       sync.Mutex // guards the fields below
	cancel   context.CancelFunc
	unlisten func()
	done     chan struct{}
	stopped  bool
}

// New checks the options.
func New(opts Options) (*Runner, error) {
	if opts.Definitions == nil || opts.OnChange == nil || opts.Source == nil || opts.Intake == nil || opts.Acts == nil ||
		opts.Logger == nil || opts.Evaluations == nil || opts.Seconds == nil {
		return nil, errors.New("computed events: an option is missing")
	}
	if opts.Concurrent < 1 || opts.Timeout <= 0 {
		return nil, errors.New("computed events: Concurrent and Timeout must be above 0")
	}
	all, err := selector.Parse(opts.Label+` =~ ""`, "")
	if err != nil {
		return nil, err
	}
	log := opts.Logger.With("component", opts.Component)
	return &Runner{
		opts: opts, log: log, rare: rarelog.New(log), all: all, wake: make(chan struct{}, 1),
		ended: make(chan outcome, opts.Concurrent),
	}, nil
}

// Start evaluates all definitions once and then each in its interval, until Stop.
func (r *Runner) Start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil || r.stopped {
		return errors.New("start " + r.opts.Component + ": started or stopped before")
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.unlisten = r.opts.OnChange(func() {
		select {
		case r.wake <- struct{}{}:
		default: // a wake-up is pending already
		}
	})
	r.done = make(chan struct{})
	go r.run(ctx)
	return nil
}

// Stop cancels the running evaluations and waits for them.
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

// job is a definition and when it is due next. Only the goroutine of run has it.
type job struct {
	def     Definition
	due     time.Time
	running bool
	changed bool  // while it runs: it is evaluated again at once
	deleted bool  // while it runs: its events are removed when it has ended
	err     error // of the last evaluation; an error is logged when it comes after none
}

// outcome is an evaluation that has ended.
type outcome struct {
	job     *job
	err     error
	took    time.Duration
	stopped bool
}

// sweepInterval is the time between two searches for events of deleted definitions. Those that follow a deletion come
// at once. The others find what these could not remove: while the log took nothing, or before this member acted. They
// look at all events, so they are rare.
const sweepInterval = 10 * time.Minute

func (r *Runner) run(ctx context.Context) {
	defer close(r.done)
	jobs := map[resource.Name]*job{}
	var underWay sync.WaitGroup
	defer underWay.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	sweeps := time.NewTicker(sweepInterval)
	defer sweeps.Stop()
	r.refresh(jobs)
	r.sweep(ctx, jobs)
	for {
		wait := r.runDue(ctx, jobs, &underWay)
		r.report(jobs)
		timer.Reset(wait)
		gone := false
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
			gone = r.refresh(jobs)
		case o := <-r.ended:
			gone = r.end(jobs, o)
		case <-sweeps.C:
			gone = true
		}
		if gone {
			r.sweep(ctx, jobs)
		}
	}
}

// idle is how long a Runner sleeps while it has no definitions.
const idle = time.Hour

// runDue begins to evaluate the due definitions, earliest first, and returns the time until the next one is due.
func (r *Runner) runDue(ctx context.Context, jobs map[resource.Name]*job, underWay *sync.WaitGroup) time.Duration {
	now := time.Now()
	var due []*job
	running := 0
	for _, j := range jobs {
		if j.running {
			running++
		} else if !j.due.After(now) {
			due = append(due, j)
		}
	}
	slices.SortFunc(due, func(a, b *job) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.def.Name.Name, b.def.Name.Name))
	})
	for _, j := range due {
		if !r.opts.Acts(j.def.Name.Namespace, j.def.Name.Name) {
			j.next(now)
			continue
		}
		if running == r.opts.Concurrent {
			return idle // the end of an evaluation comes first
		}
		running++
		j.running = true
		j.due = j.due.Add(j.interval())
		underWay.Go(func() { r.ended <- r.evaluate(ctx, j, j.def) })
	}
	wait := idle
	for _, j := range jobs {
		if !j.running {
			wait = min(wait, max(0, j.due.Sub(now)))
		}
	}
	return wait
}

func (j *job) interval() time.Duration { return time.Duration(j.def.Interval) * time.Second }

// next moves the due time into the future. Missed evaluations are skipped.
func (j *job) next(now time.Time) {
	if !j.due.After(now) {
		j.due = j.due.Add(j.interval())
	}
	if j.due.Before(now) {
		j.due = now.Add(j.interval())
	}
}

func (r *Runner) evaluate(ctx context.Context, j *job, def Definition) outcome {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	err := def.Evaluate(ctx)
	return outcome{job: j, err: err, took: time.Since(begin), stopped: ctx.Err() != nil &&
		errors.Is(err, context.Canceled)}
}

// end notes the end of an evaluation. gone says that its definition was deleted in the meantime.
func (r *Runner) end(jobs map[resource.Name]*job, o outcome) (gone bool) {
	j := o.job
	j.running = false
	name := j.def.Name
	if !o.stopped {
		r.opts.Seconds.Observe(o.took.Seconds())
		result := "ok"
		if o.err != nil {
			result = "failed"
		}
		r.opts.Evaluations.WithLabelValues(result).Inc()
		if o.err != nil && j.err == nil {
			r.rare.Error("the evaluation has no result", name.Namespace+"/"+name.Name, "namespace", name.Namespace,
				r.opts.Kind, name.Name, "err", o.err)
		}
		j.err = o.err
	}
	if j.deleted {
		delete(jobs, name)
		return true
	}
	if !j.changed {
		if now := time.Now(); j.due.Before(now) {
			j.due = now.Add(j.interval()) // missed evaluations are skipped
		}
	}
	j.changed = false
	return false
}

// refresh updates the jobs from the definitions. New and changed ones are due at once. gone says that a job was
// removed.
func (r *Runner) refresh(jobs map[resource.Name]*job) (gone bool) {
	now := time.Now()
	present := map[resource.Name]bool{}
	for _, def := range r.opts.Definitions() {
		present[def.Name] = true
		j := jobs[def.Name]
		switch {
		case j == nil:
			jobs[def.Name] = &job{def: def, due: now}
		case j.running:
			if j.deleted = false; j.def.Of != def.Of {
				j.def, j.due, j.changed = def, now, true
			}
		case j.def.Of == def.Of:
		default:
			jobs[def.Name] = &job{def: def, due: now}
		}
	}
	for name, j := range jobs {
		switch {
		case present[name]:
		case j.running:
			j.deleted = true
		default:
			delete(jobs, name)
			gone = true
		}
	}
	return gone
}

func (r *Runner) report(jobs map[resource.Name]*job) {
	if r.opts.Report == nil {
		return
	}
	all := make([]Status, 0, len(jobs))
	for _, j := range jobs {
		if !j.deleted {
			all = append(all, Status{Of: j.def.Of, Err: j.err})
		}
	}
	r.opts.Report(all)
}

// sweep retires the events of definitions that no longer exist. Those of a deleted one that still runs wait for its
// end.
func (r *Runner) sweep(ctx context.Context, jobs map[resource.Name]*job) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	found, err := r.opts.Source.Find(ctx, "", r.all)
	if err != nil {
		if ctx.Err() == nil {
			r.rare.Error("cannot look for events of deleted definitions", "", "err", err)
		}
		return
	}
	for _, k := range found {
		ev, err := r.opts.Source.Event(k)
		if err != nil || !r.Made(ev) {
			continue // gone in the meantime, or a client's
		}
		of := resource.Name{Namespace: k.Namespace, Name: ev.Check.Metadata.Labels[r.opts.Label]}
		if _, ok := jobs[of]; ok || !r.opts.Acts(of.Namespace, of.Name) {
			continue
		}
		if err := r.Retire(ctx, k, r.opts.Deleted); err != nil && ctx.Err() == nil {
			r.rare.Error("cannot remove an event of a deleted definition", k.Namespace, "namespace", k.Namespace, "entity",
				k.Entity, "check", k.Check, "err", err)
		}
	}
}

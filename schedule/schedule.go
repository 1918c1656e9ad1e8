// Package schedule decides which check runs when, and passes each request to Options.Publish. Package backend starts a
// Scheduler; the API calls Execute.
//
// One goroutine keeps the next due time of every published check in a heap. Due times depend on the check and the wall
// clock alone (see timetable): they survive a restart, never drift, and are the same on every backend of a cluster. A
// tick that could not be handled before the next one was due is skipped and counted, so a pause ends with at most one
// request for each check. Ticks of round-robin checks are not skipped while they are new enough (Options.Recall): the
// receiver knows which of them were run. Changes of definitions take effect at the next tick; a check keeps its phase as long as its
// interval or cron stays.
//
// A check that every agent of its subscriptions runs is also assigned (Options.Assign): agents with a schedule of their
// own run it by themselves, and the requests are for the others. A tick of a check with proxy requests is a run on its
// own goroutine: one request for each matching entity, over a part of the interval. Which agents get a request is up to
// the receiver.
package schedule

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/filter"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule/timetable"
)

// Options configures a Scheduler.
type Options struct {
	// Config holds the checks and reports their changes.
	Config *config.Store
	// Publish gets each request, on the scheduler's goroutine or on that of a run for proxy entities. It must be quick
	// and modify nothing: requests of one check share their Config.
	Publish func(Request)
	// Assign, if set, gets the checks that agents may run by themselves, all that changed together in one call, on the
	// scheduler's goroutine. A check's Assignment comes before its first request that is marked Assigned.
	Assign func([]Assignment)
	// Recall is how old a tick of a round-robin check may be that is published although a newer one is due, for a check whose
	// ticks are so far apart. After a start, and after a pause, those ticks are published too. Default: none.
	Recall func(every time.Duration) time.Duration
	// Compile compiles an expression of a check's proxy requests. Default: all are invalid.
	Compile func(namespace, check, expression string) (*filter.EntityExpression, error)
	// Calendars has the calendars of checks. Default: the scheduler's own.
	Calendars *calendar.Calendars
	// Spread is that of the messages to agents, which gives those with a schedule of their own their moments.
	Spread time.Duration
	// PhaseHash derives the phases of checks from their names. Default timetable.MD5.
	PhaseHash timetable.Hash
	// Logger; default none.
	Logger *slog.Logger
	// Registerer takes the metrics; default none.
	Registerer prometheus.Registerer
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Request is one tick of one check.
type Request struct {
	Namespace     string
	Subscriptions []string
	// RoundRobin asks for one agent of each subscription; otherwise all of them run the check.
	RoundRobin bool
	// Asked says that a user asked for the run: it is no tick of the schedule.
	Asked bool
	// Tick is when the check was due, or when a user asked for it, and Due when this request is: those for proxy entities
	// may be spread over the time until the next tick. Both are on a whole second.
	Tick, Due time.Time
	// Every is the distance to the next tick; 0 if there is none.
	Every time.Duration
	// Assigned says that agents with a schedule of their own run the check without being asked.
	Assigned bool
	Request  *resource.CheckRequest
}

// Assignment is a check that agents may run by themselves, or no longer may.
type Assignment struct {
	Namespace, Check string
	// Request is the check to run, not issued, with its pauses; its cron, if any, names its time zone. It is nil for a
	// check that is no longer assigned.
	Request *resource.CheckRequest
	// Every is the distance between ticks, and Phase their offset in it; 0 for a cron without a fixed distance.
	Every, Phase time.Duration
}

// maxWait bounds how long the scheduler trusts its timer. The timer ignores changes of the wall clock and stops while
// the machine sleeps.
const maxWait = time.Second

// definitions is the scheduler's view of a config.Store.
type definitions interface {
	check(namespace, name string) (*resource.CheckConfig, bool)
	checks() iter.Seq[*resource.CheckConfig]
	hook(namespace, name string) (*resource.HookConfig, bool)
	asset(namespace, name string) (*resource.Asset, bool)
	// entities returns a namespace's entities, in the order of their names, and a value that changes with them.
	entities(namespace string) (all iter.Seq[*resource.EntityConfig], version any)
	// calendar returns a calendar, which has a problem if it is missing.
	calendar(namespace, name string) *calendar.Calendar
	OnChange(f func(config.Change)) (cancel func())
}

type store struct {
	*config.Store
	calendars *calendar.Calendars
}

func (s store) calendar(namespace, name string) *calendar.Calendar {
	return s.calendars.Find(s.Snapshot(), namespace, name)
}

func (s store) check(namespace, name string) (*resource.CheckConfig, bool) {
	return config.Get(s.Snapshot(), config.Checks, namespace, name)
}

func (s store) checks() iter.Seq[*resource.CheckConfig] {
	return config.List(s.Snapshot(), config.Checks, "")
}

func (s store) hook(namespace, name string) (*resource.HookConfig, bool) {
	return config.Get(s.Snapshot(), config.Hooks, namespace, name)
}

func (s store) asset(namespace, name string) (*resource.Asset, bool) {
	return config.Get(s.Snapshot(), config.Assets, namespace, name)
}

func (s store) entities(namespace string) (all iter.Seq[*resource.EntityConfig], version any) {
	sn := s.Snapshot()
	return config.List(sn, config.Entities, namespace), config.Version(sn, config.Entities)
}

// Scheduler publishes requests for checks as they fall due.
type Scheduler struct {
	opts    Options
	log     *slog.Logger
	rare    *rarelog.Log // for messages that may come for each tick or change
	metrics metrics
	defs    definitions
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}

	lifecycle sync.Mutex // guards the three below
	started   bool
	stopped   bool
	cancel    func()

	mu      sync.Mutex                 // guards the fields below
	dirty   map[resource.Name]struct{} // checks to update
	renewed map[part]struct{}          // changed hooks and assets
	closed  bool                       // calendars have changed
	asked   map[resource.Name]*run     // requested runs for proxy entities, by check

	ctx     context.Context // for the runs for proxy entities; ends at Stop
	endRuns func()
	runs    sync.WaitGroup
	atOnce  int // the constant, except in tests
	matches matchTable

	// The fields below belong to the goroutine.
	jobs  map[resource.Name]*job
	queue queue
	last  int64 // the clock when it was last read, Unix nanoseconds
	// pausesUntil is when agents must learn further pauses of checks with calendars, Unix nanoseconds.
	pausesUntil int64
	// begins says that the first look at the definitions is not over.
	begins bool
	// assigned are the checks that agents may run by themselves.
	assigned map[resource.Name]struct{}
	zone     string // the backend's time zone
}

// New checks the options.
func New(opts Options) (*Scheduler, error) {
	if opts.Config == nil {
		return nil, errors.New("scheduler: Config is required")
	}
	if opts.Calendars == nil {
		opts.Calendars = calendar.New(opts.Logger)
	}
	return newScheduler(opts, store{opts.Config, opts.Calendars})
}

func newScheduler(opts Options, defs definitions) (*Scheduler, error) {
	if opts.Publish == nil {
		return nil, errors.New("scheduler: Publish is required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Recall == nil {
		opts.Recall = func(time.Duration) time.Duration { return 0 }
	}
	if opts.Compile == nil {
		opts.Compile = func(string, string, string) (*filter.EntityExpression, error) {
			return nil, errors.New("no program to run expressions")
		}
	}
	ctx, endRuns := context.WithCancel(context.Background())
	return &Scheduler{
		opts:    opts,
		log:     opts.Logger.With("component", "schedule"),
		rare:    rarelog.New(opts.Logger.With("component", "schedule")),
		metrics: newMetrics(opts.Registerer),
		defs:    defs,
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		dirty:   map[resource.Name]struct{}{},
		renewed: map[part]struct{}{},
		asked:   map[resource.Name]*run{},
		ctx:     ctx,
		endRuns: endRuns,
		atOnce:  atOnce,
		matches: matchTable{all: map[matchKey]*matches{}},
		jobs:    map[resource.Name]*job{},

		assigned: map[resource.Name]struct{}{},
		zone:     zoneName(),
	}, nil
}

// Start begins to schedule present and future checks. The context is not kept.
func (s *Scheduler) Start(context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.started || s.stopped {
		return errors.New("start scheduler: started or stopped before")
	}
	s.started, s.begins = true, true
	s.last = s.opts.Now().UnixNano()
	s.cancel = s.defs.OnChange(s.changed)
	for c := range s.defs.checks() {
		s.mark(resource.NameOf(&c.Metadata))
	}
	go s.run()
	return nil
}

// Stop ends the scheduler for good. Nothing is published after it has returned.
func (s *Scheduler) Stop() error {
	s.lifecycle.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
		if s.started {
			s.cancel()
		}
		s.mu.Lock() // no run begins after this
		s.endRuns()
		s.mu.Unlock()
	}
	started := s.started
	s.lifecycle.Unlock()
	if started {
		<-s.done
	}
	s.runs.Wait()
	return nil
}

// changed runs on the watcher's goroutine, so it only notes the change.
func (s *Scheduler) changed(c config.Change) {
	switch c.Kind {
	case config.Checks.String():
		s.mark(resource.Name{Namespace: c.Namespace, Name: c.Name})
	case config.Hooks.String(), config.Assets.String():
		s.mu.Lock()
		s.renewed[part{c.Kind, resource.Name{Namespace: c.Namespace, Name: c.Name}}] = struct{}{}
		s.mu.Unlock()
	case config.Calendars.String():
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	default:
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Scheduler) mark(k resource.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty[k] = struct{}{}
}

func (s *Scheduler) run() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
		}
		s.handle()
		timer.Reset(s.untilNext())
	}
}

// handle applies changes and fires due checks.
func (s *Scheduler) handle() {
	s.readClock()
	s.applyChanges()
	s.begins = false
	for len(s.queue) > 0 && s.queue[0].due <= s.last {
		select {
		case <-s.stop:
			return
		default:
			s.fire(s.queue[0])
		}
	}
}

// readClock computes the due times again when the wall clock was set back: ticks repeat until it has caught up. Small
// steps only delay, since computing again could repeat a tick of a moment ago.
func (s *Scheduler) readClock() {
	now := s.opts.Now().UnixNano()
	if now < s.last-int64(time.Second) {
		s.log.Warn("wall clock was set back; due times are computed anew", "seconds", (s.last-now)/int64(time.Second))
		for _, j := range s.jobs {
			j.due = j.times.Next(now)
		}
		s.queue.init()
	}
	s.last = now
}

func (s *Scheduler) untilNext() time.Duration {
	if len(s.queue) == 0 {
		return maxWait
	}
	return min(maxWait, max(0, time.Duration(s.queue[0].due-s.opts.Now().UnixNano())))
}

// applyChanges updates the jobs of changed checks.
func (s *Scheduler) applyChanges() {
	s.mu.Lock()
	closed := s.closed || s.last >= s.pausesUntil
	if len(s.dirty) == 0 && len(s.renewed) == 0 && !closed {
		s.mu.Unlock()
		return
	}
	dirty, renewed := s.dirty, s.renewed
	s.dirty, s.renewed, s.closed = map[resource.Name]struct{}{}, map[part]struct{}{}, false
	s.mu.Unlock()
	if closed {
		s.pausesUntil = s.last + int64(pausesEvery)
		for k, j := range s.jobs {
			if j.gate != nil {
				dirty[k] = struct{}{}
			}
		}
	}
	if len(renewed) > 0 {
		for k, j := range s.jobs {
			if needsAny(j, k.Namespace, renewed) {
				dirty[k] = struct{}{}
			}
		}
	}
	var changed []Assignment
	for k := range dirty {
		s.apply(k)
		if a, ok := s.assign(k); ok {
			changed = append(changed, a)
		}
	}
	if len(changed) > 0 {
		s.opts.Assign(changed)
	}
	s.metrics.checks.Set(float64(len(s.jobs)))
}

func (s *Scheduler) apply(k resource.Name) {
	j := s.jobs[k]
	c, found := s.defs.check(k.Namespace, k.Name)
	if !found || !c.Publish {
		s.drop(k)
		return
	}
	if j != nil && j.config.Interval == c.Interval && j.config.Cron == c.Cron {
		s.define(j, c) // keeps its due time, which may be now
		return
	}
	times, err := timetable.New(c, s.opts.PhaseHash)
	if err != nil {
		s.rare.Warn("check cannot be scheduled", k.Namespace+"/"+k.Name, "namespace", k.Namespace, "check", k.Name, "err", err)
		s.drop(k)
		return
	}
	due := times.Next(s.last)
	if j == nil {
		if s.begins && recalled(c) && due != timetable.Never {
			due = times.Next(s.last - int64(s.opts.Recall(distance(due, times.Next(due)))))
		}
		j = &job{times: times, due: due}
		s.jobs[k] = j
		s.queue.add(j)
	} else {
		j.times, j.due = times, due
		s.queue.fix(j)
	}
	s.define(j, c)
}

func (s *Scheduler) drop(k resource.Name) {
	if j := s.jobs[k]; j != nil {
		s.queue.remove(j)
		delete(s.jobs, k)
		if j.run != nil {
			j.run.cancel()
		}
		s.release(j.matches)
	}
}

// define sets the content of a job's next requests.
func (s *Scheduler) define(j *job, c *resource.CheckConfig) {
	published := *c
	// Sensu's agents and handlers know the two kinds of schedule by these names.
	switch {
	case c.ProxyRequests != nil:
		published.Scheduler = ""
	case c.RoundRobin:
		published.Scheduler = "etcd"
	default:
		published.Scheduler = "memory"
	}
	before := j.parts.unknown
	j.config, j.parts = &published, s.partsOf(c)
	if unknown := j.parts.unknown; len(unknown) > 0 && !slices.Equal(unknown, before) {
		s.rare.Warn("check names assets that are not defined, it is run without them", c.Metadata.Namespace+"/"+c.Metadata.Name,
			"namespace", c.Metadata.Namespace, "check", c.Metadata.Name, "assets", unknown)
	}
	find := func(name string) *calendar.Calendar { return s.defs.calendar(c.Metadata.Namespace, name) }
	var missing []string
	j.gate, missing = calendar.NewGate(c.Calendars, find)
	for _, problem := range missing {
		s.rare.Warn("check runs without regard to a calendar", resource.NameOf(&c.Metadata).String()+" "+problem,
			"namespace", c.Metadata.Namespace, "check", c.Metadata.Name, "err", problem)
	}
	old := j.matches
	if j.matches = nil; c.ProxyRequests != nil {
		j.matches = s.proxiesOf(c)
	}
	s.release(old) // after acquire, which may have returned the same
	var err error
	if j.subdues, err = timetable.Subdues(c.Subdues); err != nil {
		s.rare.Warn("subdue is ignored", c.Metadata.Namespace+"/"+c.Metadata.Name, "namespace", c.Metadata.Namespace,
			"check", c.Metadata.Name, "err", err)
	}
}

// fire publishes the newest due tick of a job, and those before it that are recalled, and queues the job's next.
func (s *Scheduler) fire(j *job) {
	now := max(j.due, s.opts.Now().UnixNano()) // the clock may have been set back since readClock
	first := j.due
	tick, missed := j.times.Latest(first, now)
	j.due = j.times.Next(now)
	s.queue.fix(j)
	if missed > 0 && recalled(j.config) {
		oldest := now - int64(s.opts.Recall(distance(tick, j.due)))
		for t := max(first, j.times.Next(oldest)); t < tick; {
			missed--
			next := j.times.Next(t)
			s.publish(j, t, next, now)
			t = next
		}
	}
	s.metrics.missed.Add(float64(missed))
	s.publish(j, tick, j.due, now)
}

// recalled reports whether older ticks of a check are published too. A run for proxy entities takes a good part of the time
// until the next tick, so there only the newest one is.
func recalled(c *resource.CheckConfig) bool { return c.RoundRobin && c.ProxyRequests == nil }

// publish publishes a tick of a job; next is the one behind it.
func (s *Scheduler) publish(j *job, tick, next, now int64) {
	if at := time.Unix(0, tick); timetable.Subdued(j.subdues, at) || !j.gate.Open(at) {
		s.metrics.subdued.Inc()
		return
	}
	if j.matches != nil {
		s.fireProxies(j, tick, now)
		return
	}
	_, assigned := s.assigned[resource.NameOf(&j.config.Metadata)]
	s.metrics.lateness.Observe(float64(now-tick) / float64(time.Second))
	s.metrics.requests.Inc()
	r := Request{
		Namespace:     j.config.Metadata.Namespace,
		Subscriptions: j.config.Subscriptions,
		RoundRobin:    j.config.RoundRobin,
		Tick:          time.Unix(0, tick),
		Due:           time.Unix(0, tick),
		Every:         distance(tick, next),
		Assigned:      assigned,
		Request:       j.parts.request(j.config, j.issue(tick, now)),
	}
	s.opts.Publish(r)
}

// askedEvery is the time until a run that a user asked for is old, for a check without an interval.
const askedEvery = time.Minute

// Execute runs a check once, now, regardless of publishing, subdues and calendars in its definition: on every agent with one of the
// subscriptions, or if it is round robin on one of each, unless all is set. A check with proxy requests runs for each
// matching entity, over the time that its ticks take; an unfinished requested run begins again. issued is when the request
// was made, in Unix seconds: it is the same on all backends that ask their agents. An agent drops a check that it has run
// in this second already.
func (s *Scheduler) Execute(c *resource.CheckConfig, subscriptions []string, issued int64, all bool) {
	now := s.opts.Now()
	published := *c
	published.Scheduler = "" // as in Sensu
	p := s.partsOf(c)
	roundRobin := c.RoundRobin && !all
	if c.ProxyRequests != nil {
		s.executeProxies(&run{
			config: &published, subscriptions: subscriptions, parts: p, matches: s.proxiesOf(c), issued: issued,
			tick: time.Unix(issued, 0), asked: true, roundRobin: roundRobin,
		}, now)
		return
	}
	s.metrics.requests.Inc()
	s.opts.Publish(Request{
		Namespace: c.Metadata.Namespace, Subscriptions: subscriptions, RoundRobin: roundRobin, Asked: true,
		Tick: time.Unix(issued, 0), Due: now, Every: cmp.Or(timetable.Every(c), askedEvery), Request: p.request(&published, issued),
	})
}

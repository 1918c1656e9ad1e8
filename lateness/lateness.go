// Package lateness finds published checks whose runs are missing, and reports them: in lists, as metrics and as events.
//
// Runs is a follower of the fold: it keeps when each defined check last ran. A run is a result that an agent made
// because a backend requested it, or because the check is in the agent's schedule (state.Applied.Ran). Watcher compares
// that with the ticks of the check's interval or cron. A check is late if the result of a tick has not come from any
// agent after the check's timeout, or after one interval if it has no timeout. Watcher also asks all members of the
// cluster for subscriptions that no agent has.
//
// Silence proves nothing while the backend cannot hear. After it begins to hear again, agents first connect, and then a
// tick must pass (hearing.proves). Until then the lateness of a check is unknown. One member of a cluster reports
// checks that are late by several runs as events of the backend itself (report.go).
//
// Package backend makes Runs and Watcher, and connects them with the sessions, the scheduler and the intake. Package
// api serves the lists. Package lateness does not decide when a check runs, and starts none.
package lateness

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/calendar"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
	"github.com/lapwing-monitoring/lapwing/ownevent"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// State has the pairs. *state.State is one.
type State interface {
	Pairs(namespace string) iter.Seq[state.Pair]
	PairsOf(namespace, entity string) []state.Pair
}

// Agents is what the members of the cluster say about their agents.
type Agents struct {
	// Without are the subscriptions that no connected agent has.
	Without []resource.Name
	// HeardFor is how long all members have heard their agents without a break.
	HeardFor time.Duration
}

// Options configures a Watcher. The functions, Runs and State are required unless their comments have a default. If the
// comment of another field does not say what 0 means, 0 is replaced by the value of DefaultOptions.
type Options struct {
	// Snapshot returns the definitions, and Written when a check's was written.
	Snapshot func() *config.Snapshot
	Written  func(namespace, check string) time.Time
	Runs     *Runs
	State    State
	// Calendar returns a calendar of the present definitions. Default: none is defined.
	Calendar func(namespace, name string) *calendar.Calendar
	// HeardFor returns how long this backend has heard all its agents, and sent them all requests, without a break.
	HeardFor func(now time.Time) time.Duration
	// Agents asks all members which of some subscriptions no connected agent has.
	Agents func(ctx context.Context, subscriptions []resource.Name) Agents
	// Proxies returns for how many entities a check with proxy requests runs, if that is known.
	Proxies func(*resource.CheckConfig) (n int, known bool)
	// Queued returns how long a tick of a round-robin check may wait for an agent. Default: it does not wait.
	Queued func(every time.Duration) time.Duration
	// Acts reports whether this backend makes the events. Default: it does.
	Acts func() bool
	// Report makes an event of the backend about itself.
	Report func(ctx context.Context, namespace, check string, status uint32, output string) error
	// Every is how often the Watcher looks.
	Every time.Duration
	// Grace is the least time that a result may take.
	Grace time.Duration
	// Silence is the least time without a run before a check is reported.
	Silence time.Duration
	// Reconnect is how long agents may take to connect after the backend, or another member, was away.
	Reconnect  time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// DefaultOptions returns the default settings.
func DefaultOptions() Options {
	// An agent notices a dead backend after 45 s, and then waits for up to two minutes between two attempts.
	return Options{Every: 10 * time.Second, Grace: 10 * time.Second, Silence: time.Minute, Reconnect: 3 * time.Minute}
}

// Watcher compares the runs of all checks with their schedules.
type Watcher struct {
	opts Options

	mu          sync.Mutex // guards the fields below
	checks      map[resource.Name]*check
	version     any                    // of the definitions in checks; nil before the first
	calendars   any                    // the version of the calendars
	began       time.Time              // when agents could first connect
	othersSince time.Time              // since when all members hear, as they last answered
	without     map[resource.Name]bool // subscriptions that no connected agent has, as the members last answered

	reporter *ownevent.Reporter // only report uses it

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// check is a defined check. The Watcher's mu guards it.
type check struct {
	config  *resource.CheckConfig
	plan    *plan // nil if the check has no schedule, or is not published
	run     *run
	since   int64 // when the check was defined, or its schedule changed, Unix nanoseconds
	overdue overdue
	proxies proxies
}

// proxies says what is known of the entities of a check with proxy requests.
type proxies int

const (
	someProxies proxies = iota // or the check has no proxy requests
	noProxies
	unknownProxies
)

// New checks the options.
func New(opts Options) (*Watcher, error) {
	if opts.Snapshot == nil || opts.Written == nil || opts.Runs == nil || opts.State == nil || opts.HeardFor == nil ||
		opts.Agents == nil || opts.Proxies == nil || opts.Report == nil {
		return nil, errors.New("lateness: a required option is missing")
	}
	defaults := DefaultOptions()
	opts.Every = cmp.Or(opts.Every, defaults.Every)
	opts.Grace = cmp.Or(opts.Grace, defaults.Grace)
	opts.Silence = cmp.Or(opts.Silence, defaults.Silence)
	opts.Reconnect = cmp.Or(opts.Reconnect, defaults.Reconnect)
	if opts.Every < 0 || opts.Grace < 0 || opts.Silence < 0 || opts.Reconnect < 0 {
		return nil, errors.New("lateness: Every, Grace, Silence and Reconnect must not be negative")
	}
	if opts.Acts == nil {
		opts.Acts = func() bool { return true }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Calendar == nil {
		opts.Calendar = func(_, name string) *calendar.Calendar { return &calendar.Calendar{Problem: name} }
	}
	rare := rarelog.New(opts.Logger.With("component", "lateness"))
	w := &Watcher{
		opts: opts, cancel: func() {}, checks: map[resource.Name]*check{},
		reporter: newReporter(&opts, rare),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(collector{w})
	}
	return w, nil
}

// Start reads from the state when checks last ran, and then compares all checks periodically until Stop. Agents must be
// able to connect.
func (w *Watcher) Start(ctx context.Context) error {
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	now := time.Now()
	w.mu.Lock()
	w.began = now
	w.refresh(now)
	w.mu.Unlock()
	// Runs follows the fold since refresh, so no run is lost. A check that is defined later has no earlier runs.
	for pair := range w.opts.State.Pairs("") {
		if one := w.opts.Runs.find(resource.Name{Namespace: pair.Namespace, Name: pair.Check}); one != nil {
			one.raise(pair.Ran * 1000)
		}
	}
	w.done.Go(func() { w.loop(ctx) })
	return nil
}

// Stop waits until an event that is being made has been sent.
func (w *Watcher) Stop() error {
	w.cancel()
	w.done.Wait()
	return nil
}

func (w *Watcher) loop(ctx context.Context) {
	tick := time.NewTicker(w.opts.Every)
	defer tick.Stop()
	for {
		w.look(ctx)
		if w.opts.Acts() {
			w.report(ctx)
		} else {
			w.reporter.Forget() // another member makes the events now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look compares all checks, and asks all members about their agents. Only loop calls it: a request to the API reads the
// last answer, so it neither waits for a member nor replaces the answer when it is cancelled.
func (w *Watcher) look(ctx context.Context) {
	begin := time.Now()
	w.mu.Lock()
	w.refresh(begin)
	for _, c := range w.checks {
		w.count(c, begin.UnixNano())
	}
	subscriptions := w.subscriptions()
	w.mu.Unlock()

	answer := w.opts.Agents(ctx, subscriptions)
	if ctx.Err() != nil {
		return
	}
	without := make(map[resource.Name]bool, len(answer.Without))
	for _, subscription := range answer.Without {
		without[subscription] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.without, w.othersSince = without, begin.Add(-answer.HeardFor)
}

// refresh reads the definitions if they have changed. The caller holds mu.
func (w *Watcher) refresh(now time.Time) {
	sn := w.opts.Snapshot()
	version, calendars := config.Version(sn, config.Checks), config.Version(sn, config.Calendars)
	if version == w.version && calendars == w.calendars {
		return
	}
	moved := calendars != w.calendars
	before, runs := w.checks, table{}
	w.checks = make(map[resource.Name]*check, config.Len(sn, config.Checks))
	for def := range config.List(sn, config.Checks, "") {
		k := resource.NameOf(&def.Metadata)
		c := before[k]
		if c == nil {
			c = &check{run: new(run)}
		}
		if c.config != def || moved && !def.Calendars.Empty() {
			c.define(def, &w.opts, now)
		}
		if w.checks[k] = c; runs[k.Namespace] == nil {
			runs[k.Namespace] = map[string]*run{}
		}
		runs[k.Namespace][k.Name] = c.run
	}
	w.opts.Runs.checks.Store(&runs)
	w.version, w.calendars = version, calendars
}

// define sets the definition of a check. If the schedule has changed, runs are due from then on.
func (c *check) define(def *resource.CheckConfig, opts *Options, now time.Time) {
	old := c.config
	c.config = def
	if old == def { // only calendars have changed: what they excused before, they may not excuse any more
		c.since, c.overdue = now.UnixNano(), overdue{}
		if def.Publish {
			c.plan = newPlan(def, opts)
		}
		return
	}
	if old != nil && sameSchedule(old, def) {
		return
	}
	at := opts.Written(def.Metadata.Namespace, def.Metadata.Name)
	if at.IsZero() || at.After(now) { // the check has just been deleted, or the broker's clock is ahead
		at = now
	}
	c.since, c.overdue = at.UnixNano(), overdue{}
	if c.plan = nil; def.Publish {
		c.plan = newPlan(def, opts)
	}
}

// sameSchedule reports whether two definitions of a check run at the same times on the same agents.
func sameSchedule(a, b *resource.CheckConfig) bool {
	var none resource.ProxyRequests
	return a.Publish == b.Publish && a.Interval == b.Interval && a.Cron == b.Cron && a.Timeout == b.Timeout &&
		a.RoundRobin == b.RoundRobin && sameCalendars(a.Calendars, b.Calendars) && slices.Equal(a.Subscriptions, b.Subscriptions) &&
		(a.ProxyRequests == nil) == (b.ProxyRequests == nil) &&
		slices.Equal(cmp.Or(a.ProxyRequests, &none).EntityAttributes, cmp.Or(b.ProxyRequests, &none).EntityAttributes) &&
		slices.EqualFunc(a.Subdues, b.Subdues, func(a, b resource.TimeWindowRepeated) bool {
			return a.Begin == b.Begin && a.End == b.End && slices.Equal(a.Repeat, b.Repeat)
		})
}

func sameCalendars(a, b *resource.CheckCalendars) bool {
	if a.Empty() || b.Empty() {
		return a.Empty() && b.Empty()
	}
	return slices.Equal(a.RunWithin, b.RunWithin) && slices.Equal(a.NotWithin, b.NotWithin)
}

// lastRun returns when the check last ran, Unix nanoseconds; 0 if no run is known.
func (c *check) lastRun() int64 { return c.run.received.Load() * int64(time.Millisecond) }

// count counts the missing runs of a check. The caller holds mu.
func (w *Watcher) count(c *check, now int64) {
	c.run.lower(now / int64(time.Millisecond))
	if c.plan == nil {
		return
	}
	c.proxies = someProxies
	if c.config.ProxyRequests != nil {
		switch n, known := w.opts.Proxies(c.config); {
		case !known:
			c.proxies = unknownProxies
		case n == 0:
			c.proxies = noProxies
			c.since = now // the first entity that matches has a whole interval
		}
	}
	if from := max(c.lastRun(), c.since); from != c.overdue.from {
		c.overdue = c.plan.overdueSince(from)
	}
	c.overdue.count(c.plan, now, mostOverdue)
}

// lateness of a check.
type lateness int

const (
	unknown lateness = iota
	onTime
	isLate
)

// judge says whether a check with a plan is late. The missing runs must have been counted.
func (c *check) judge(h hearing) lateness {
	switch {
	case c.overdue.runs == 0:
		return onTime
	case c.proxies != unknownProxies && h.proves(c.plan, c.lastRun(), &c.overdue):
		return isLate
	}
	return unknown
}

// subscriptions returns the subscriptions of all checks that should run. The caller holds mu.
func (w *Watcher) subscriptions() []resource.Name {
	seen := map[resource.Name]bool{}
	for k, c := range w.checks {
		if c.plan == nil {
			continue
		}
		for _, s := range c.config.Subscriptions {
			seen[resource.Name{Namespace: k.Namespace, Name: s}] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// withoutAgent reports whether a check has subscriptions, and no connected agent has any of them. The caller holds mu.
func (w *Watcher) withoutAgent(namespace string, c *resource.CheckConfig) bool {
	for _, s := range c.Subscriptions {
		if !w.without[resource.Name{Namespace: namespace, Name: s}] {
			return false
		}
	}
	return len(c.Subscriptions) > 0
}

// hearing returns since when all members hear their agents. The caller holds mu.
func (w *Watcher) hearing(now time.Time) hearing {
	h := hearing{now: now.UnixNano(), since: now.UnixNano(), reconnect: w.opts.Reconnect}
	if !w.began.IsZero() && !w.othersSince.IsZero() {
		own := now.Add(-w.opts.HeardFor(now))
		h.since = max(w.began.UnixNano(), own.UnixNano(), w.othersSince.UnixNano())
	}
	return h
}

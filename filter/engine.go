package filter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Options wires an Engine.
type Options struct {
	// Budget is how much CPU time one expression may take for one event, where that is known; on a busy machine it may take
	// ten times as long. Default 50 ms.
	Budget time.Duration
	// SlowShare is how much CPU time a filter's slow expressions, those of 5 ms and more, may take of a minute before it
	// is suspended until the minute is over. That a busy machine lets an expression wait does not count. Default 100 ms.
	SlowShare time.Duration
	Now       func() time.Time // default time.Now
	// Events is what the functions of sensu answer from. Nil means that they throw.
	Events Events
	// Scripts returns the JavaScript files of the named assets of a namespace. Nil means that nobody can have any.
	Scripts    func(ctx context.Context, namespace string, names []string) ([]string, error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// slow is from when on an expression's CPU time counts towards SlowShare.
const slow = 5 * time.Millisecond

// grace is how long an expression that is interrupted has to end.
const grace = 100 * time.Millisecond

// Engine asks filters that users define. It reads each definition once, and keeps its runtimes for the next event. All
// methods may be called at the same time.
type Engine struct {
	opts    Options
	log     *slog.Logger
	seconds prometheus.Histogram
	errors  *prometheus.CounterVec
	filters sync.Map // *resource.EventFilter to *compiled
	// mutators are those in JavaScript: *resource.Mutator to *mutation.
	mutators sync.Map

	// What is new, or has been slow, runs one at a time: there are few processors, and the fold needs one.
	filterLane, mutatorLane lane
}

// lane lets one in at a time.
type lane chan struct{}

// enter waits for its turn, unless who asks is trusted. It returns what to call at the end, or nil if there was no turn within
// the patience.
func (l lane) enter(ctx context.Context, a *allowance, patience time.Duration) (leave func()) {
	if a.quick.Load() && a.long.Load() == 0 {
		return func() {}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l <- struct{}{}:
		return func() { <-l }
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// laneWait is how long a filter waits for its turn.
const laneWait = time.Second

// New returns an engine without any filters.
func New(opts Options) *Engine {
	if opts.Budget <= 0 {
		opts.Budget = 50 * time.Millisecond
	}
	if opts.SlowShare <= 0 {
		opts.SlowShare = 100 * time.Millisecond
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		filterLane: make(lane, 1), mutatorLane: make(lane, 1),
		opts: opts, log: opts.Logger.With("component", "filter"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_filter_seconds", Help: "Asking one filter that a user defined about one event.",
			Buckets: prometheus.ExponentialBuckets(0.000004, 4, 9),
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_filter_errors_total", Help: "Expressions of filters that gave no answer and were ignored: not readable, thrown, out of time, out of memory, or suspended for that; also hours that cannot be read, and assets that are missing or fail."}, []string{"reason"}),
	}
	for _, reason := range []string{"syntax", "thrown", "timeout", "memory", "suspended", "window", "asset"} {
		e.errors.WithLabelValues(reason)
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(e.seconds, e.errors)
	}
	return e
}

// compiled is a definition, read.
type compiled struct {
	def        *resource.EventFilter
	allow      bool
	scripts    []script
	windows    *windows
	windowsErr error
	libraries  libraries
	stuck      atomic.Int32 // evaluations left behind
	allowance  allowance

	mu   sync.Mutex // guards told
	told map[string]bool
}

// allowance is how much CPU time the slow runs of one definition may take in a minute, and whether it is trusted to run beside
// others: it is when its last run was quick, and none is long on its way.
type allowance struct {
	quick atomic.Bool
	long  atomic.Int32 // runs on their way that have been looked after

	mu     sync.Mutex    // guards the fields below
	minute int64         // since when slowed counts, Unix minutes
	slowed time.Duration // what slow runs took in this minute
}

// spent says whether nothing is left of it.
func (a *allowance) spent(of time.Duration) bool {
	minute := time.Now().Unix() / 60
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.minute != minute {
		a.minute, a.slowed = minute, 0
	}
	return a.slowed >= of
}

// take counts what a run took if that is slow.
func (a *allowance) take(took time.Duration) {
	a.quick.Store(took < slow)
	if took < slow {
		return
	}
	a.mu.Lock()
	a.slowed += took
	a.mu.Unlock()
}

func (e *Engine) compiled(def *resource.EventFilter) *compiled {
	if c, ok := e.filters.Load(def); ok {
		return c.(*compiled)
	}
	c := &compiled{def: def, allow: def.Action != "deny", told: map[string]bool{}}
	for i, source := range def.Expressions {
		c.scripts = append(c.scripts, compile(fmt.Sprintf("%s[%d]", def.Metadata.Name, i), source))
	}
	c.windows, c.windowsErr = parseWindows(def.When)
	c.libraries = libraries{namespace: def.Metadata.Namespace, assets: def.RuntimeAssets, failed: func(reason, source string, err error) {
		e.failed(c, reason, source, err)
	}}
	known, _ := e.filters.LoadOrStore(def, c)
	return known.(*compiled)
}

// Keep forgets all filters but these.
func (e *Engine) Keep(defs iter.Seq[*resource.EventFilter]) { keep(&e.filters, defs) }

// Answer is what a filter says of an event.
type Answer struct {
	Passes bool
	// Reason says why, where it is not an expression that decides.
	Reason string
	// Asked are the expressions in their order, as far as they were asked.
	Asked []Asked
}

// Asked is what became of one expression.
type Asked struct {
	Expression string
	// Denies says that it decided. Err is why it gave no answer, and was ignored.
	Denies bool
	Err    error
	Saw    []Value
	Took   time.Duration
}

// Passes is Ask without the details.
func (e *Engine) Passes(def *resource.EventFilter, ev *resource.Event) bool {
	return e.Ask(context.Background(), def, ev).Passes
}

// Ask asks a filter about an event. One that allows wants to be within its hours and all its expressions true; one that denies
// wants to be outside of them and none true. An expression that gives no answer is ignored, and so are hours that cannot
// be read, with all expressions: an event is rather let through than lost.
//
// The answer comes within the budgets of the expressions and a moment, whatever they do: what cannot be interrupted is left
// behind, and its filter is not asked again before that has ended. The event must stay as it is even then. Only assets that
// have to be fetched first take longer.
func (e *Engine) Ask(ctx context.Context, def *resource.EventFilter, ev *resource.Event) Answer {
	c := e.compiled(def)
	begin := time.Now()
	defer func() { e.seconds.Observe(time.Since(begin).Seconds()) }()
	if c.windowsErr != nil {
		e.failed(c, "window", "", c.windowsErr)
		return Answer{Passes: true, Reason: "its hours cannot be read", Asked: []Asked{{Err: c.windowsErr}}}
	}
	if c.windows != nil && c.windows.contain(e.opts.Now()) != c.allow {
		if c.allow {
			return Answer{Reason: "it is outside of its hours"}
		}
		return Answer{Reason: "it is within its hours"}
	}
	if c.stuck.Load() > 0 {
		e.failed(c, "suspended", "", errBusy)
		return Answer{Passes: true, Asked: []Asked{{Err: errBusy}}}
	}
	if c.allowance.spent(e.opts.SlowShare) { // before it stands in the way of others
		e.failed(c, "suspended", "", errSuspended)
		return Answer{Passes: true, Asked: []Asked{{Err: errSuspended}}}
	}
	lib := c.libraries.get(ctx, e)
	leave := e.filterLane.enter(ctx, &c.allowance, laneWait)
	if leave == nil {
		e.failed(c, "suspended", "", errBusy)
		return Answer{Passes: true, Asked: []Asked{{Err: errBusy}}}
	}
	defer leave()
	answer := make(chan Answer, 1)
	go func() { answer <- e.evaluate(c, lib, ev) }()
	patience := time.NewTimer(time.Duration(len(c.scripts))*longest(e.opts.Budget) + time.Duration(len(lib.programs))*longest(libraryBudget) + grace)
	defer patience.Stop()
	select {
	case a := <-answer:
		return a
	case <-patience.C:
	}
	c.stuck.Add(1)
	go func() {
		<-answer
		c.stuck.Add(-1)
	}()
	e.failed(c, "timeout", "", errTimeout)
	return Answer{Passes: true, Asked: []Asked{{Err: errTimeout, Took: time.Since(begin)}}}
}

// evaluate asks all expressions.
func (e *Engine) evaluate(c *compiled, lib *library, ev *resource.Event) Answer {
	box := lib.sandboxes.Get().(*sandbox)
	defer func() {
		if box.spent {
			return
		}
		box.forget()
		lib.sandboxes.Put(box)
	}()
	a := Answer{Passes: true, Asked: make([]Asked, 0, len(c.scripts))}
	fresh := true
	for i := range c.scripts {
		s := &c.scripts[i]
		asked := Asked{Expression: s.source, Err: s.err}
		if s.err != nil {
			e.failed(c, "syntax", s.source, s.err)
			a.Asked = append(a.Asked, asked)
			continue
		}
		if box.spent {
			box, fresh = lib.sandbox(e, c.libraries.failed), true
		}
		if fresh {
			if err := box.event(ev); err != nil {
				e.failed(c, "thrown", s.source, err)
				continue
			}
			fresh = false
		}
		begin := time.Now()
		truth, err := e.ask(c, s, box)
		asked.Took, asked.Err, asked.Saw = time.Since(begin), err, box.saw(s, ev)
		asked.Denies = err == nil && truth != c.allow
		a.Asked = append(a.Asked, asked)
		if err != nil {
			e.failed(c, reason(err), s.source, err)
			continue
		}
		if asked.Denies {
			a.Passes = false
			return a
		}
	}
	return a
}

// ask runs an expression, unless its filter is suspended.
func (e *Engine) ask(c *compiled, s *script, box *sandbox) (truth bool, err error) {
	if c.allowance.spent(e.opts.SlowShare) {
		return false, errSuspended
	}
	box.long = &c.allowance.long
	c.allowance.take(cpuTime(func() { truth, err = box.run(s, e.opts.Budget) }))
	if errors.Is(err, errMemory) {
		c.allowance.take(e.opts.SlowShare + slow) // once is enough
	}
	return truth, err
}

// cpuTime is the CPU time that something takes in this goroutine.
func cpuTime(f func()) time.Duration {
	runtime.LockOSThread() // whose time is taken
	defer runtime.UnlockOSThread()
	begin := threadTime()
	f()
	return threadTime() - begin
}

func reason(err error) string {
	switch {
	case errors.Is(err, errTimeout):
		return "timeout"
	case errors.Is(err, errSuspended):
		return "suspended"
	case errors.Is(err, errMemory):
		return "memory"
	}
	return "thrown"
}

// failed counts, and logs each reason once for a definition.
func (e *Engine) failed(c *compiled, reason, source string, err error) {
	e.errors.WithLabelValues(reason).Inc()
	c.mu.Lock()
	again := c.told[reason]
	c.told[reason] = true
	c.mu.Unlock()
	if !again {
		e.log.Warn("filter's expression is ignored", "namespace", c.def.Metadata.Namespace, "filter", c.def.Metadata.Name, "expression", source, "err", err)
	}
}

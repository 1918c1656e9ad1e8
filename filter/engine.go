package filter

import (
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
	// Budget is how long one expression may take for one event. Default 50 ms.
	Budget time.Duration
	// SlowShare is how much CPU time a filter's slow expressions, those of 5 ms and more, may take of a minute before it
	// is suspended until the minute is over. That a busy machine lets an expression wait does not count. Default 100 ms.
	SlowShare  time.Duration
	Now        func() time.Time // default time.Now
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
}

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
		opts: opts, log: opts.Logger.With("component", "filter"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_filter_seconds", Help: "Asking one filter that a user defined about one event.",
			Buckets: prometheus.ExponentialBuckets(0.000004, 4, 9),
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapwing_filter_errors_total", Help: "Expressions of filters that gave no answer and were ignored: not readable, thrown, out of time, or suspended for that."}, []string{"reason"}),
	}
	for _, reason := range []string{"syntax", "thrown", "timeout", "suspended", "window"} {
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
	sandboxes  sync.Pool
	stuck      atomic.Int32 // evaluations left behind

	mu     sync.Mutex // guards the fields below
	told   map[string]bool
	minute int64         // since when slowed counts, Unix minutes
	slowed time.Duration // what slow expressions took in this minute
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
	c.sandboxes.New = func() any { return newSandbox(e.opts.Now) }
	known, _ := e.filters.LoadOrStore(def, c)
	return known.(*compiled)
}

// Keep forgets all definitions but these.
func (e *Engine) Keep(defs iter.Seq[*resource.EventFilter]) {
	keep := map[*resource.EventFilter]struct{}{}
	for def := range defs {
		keep[def] = struct{}{}
	}
	e.filters.Range(func(def, _ any) bool {
		if _, ok := keep[def.(*resource.EventFilter)]; !ok {
			e.filters.Delete(def)
		}
		return true
	})
}

// Passes says whether an event passes a filter. One that allows wants to be within its hours and all its expressions true;
// one that denies wants to be outside of them and none true. An expression that gives no answer is ignored, and so
// are hours that cannot be read, with all expressions: an event is rather let through than lost.
//
// The answer comes within the budgets of the expressions and a moment, whatever they do: what cannot be interrupted is left
// behind, and its filter is not asked again before that has ended. The event must stay as it is even then.
func (e *Engine) Passes(def *resource.EventFilter, ev *resource.Event) bool {
	c := e.compiled(def)
	begin := time.Now()
	defer func() { e.seconds.Observe(time.Since(begin).Seconds()) }()
	if c.windowsErr != nil {
		e.failed(c, "window", "", c.windowsErr)
		return true
	}
	if c.windows != nil && c.windows.contain(e.opts.Now()) != c.allow {
		return false
	}
	if c.stuck.Load() > 0 {
		e.failed(c, "suspended", "", errSuspended)
		return true
	}
	answer := make(chan bool, 1)
	go func() { answer <- e.evaluate(c, ev) }()
	patience := time.NewTimer(time.Duration(len(c.scripts))*e.opts.Budget + grace)
	defer patience.Stop()
	select {
	case passes := <-answer:
		return passes
	case <-patience.C:
	}
	c.stuck.Add(1)
	go func() {
		<-answer
		c.stuck.Add(-1)
	}()
	e.failed(c, "timeout", "", errTimeout)
	return true
}

// evaluate asks all expressions.
func (e *Engine) evaluate(c *compiled, ev *resource.Event) bool {
	box := c.sandboxes.Get().(*sandbox)
	defer func() {
		if box.spent {
			return
		}
		box.forget()
		c.sandboxes.Put(box)
	}()
	fresh := true
	for i := range c.scripts {
		s := &c.scripts[i]
		if s.err != nil {
			e.failed(c, "syntax", s.source, s.err)
			continue
		}
		if box.spent {
			box, fresh = newSandbox(e.opts.Now), true
		}
		if fresh {
			if err := box.event(ev); err != nil {
				e.failed(c, "thrown", s.source, err)
				continue
			}
			fresh = false
		}
		truth, err := e.ask(c, s, box)
		if err != nil {
			e.failed(c, reason(err), s.source, err)
			continue
		}
		if truth != c.allow {
			return false
		}
	}
	return true
}

// ask runs an expression, unless its filter is suspended.
func (e *Engine) ask(c *compiled, s *script, box *sandbox) (bool, error) {
	minute := time.Now().Unix() / 60
	c.mu.Lock()
	if c.minute != minute {
		c.minute, c.slowed = minute, 0
	}
	suspended := c.slowed >= e.opts.SlowShare
	c.mu.Unlock()
	if suspended {
		return false, errSuspended
	}
	runtime.LockOSThread() // whose time is taken
	begin := threadTime()
	truth, err := box.run(s, e.opts.Budget)
	took := threadTime() - begin
	runtime.UnlockOSThread()
	if took >= slow {
		c.mu.Lock()
		c.slowed += took
		c.mu.Unlock()
	}
	return truth, err
}

func reason(err error) string {
	switch {
	case errors.Is(err, errTimeout):
		return "timeout"
	case errors.Is(err, errSuspended):
		return "suspended"
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

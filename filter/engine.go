package filter

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Options configures an Engine.
type Options struct {
	// Budget bounds the CPU time of one expression for one event, where it is known; on a busy machine it may take ten
	// times as long. Default 50 ms.
	Budget time.Duration
	// SlowShare bounds the CPU time per minute of a filter's slow expressions, those of 5 ms and more. Beyond it the
	// filter is suspended until the minute is over. Time in which a busy machine does not run the expression is not
	// counted. Default 100 ms.
	SlowShare time.Duration
	Now       func() time.Time // default time.Now
	// Pool runs the expressions and mutators. Without one they give no answer.
	Pool *Pool
	// Events answers the look-ups of scripts (sensu.FetchEvent and others). If nil, they throw.
	Events Events
	// InCalendar answers in_calendar. If nil, no calendar is active.
	InCalendar InCalendar
	// Permit limits Events to what the author of a definition may read. The author is nil for definitions without one.
	// Default: no limit.
	Permit func(author *resource.Author, events Events) Events
	// Scripts returns the JavaScript files of the named assets of a namespace. If nil, there are no assets.
	Scripts    func(ctx context.Context, namespace string, names []string) ([]string, error)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// slow is the CPU time from which an expression counts towards SlowShare.
const slow = 5 * time.Millisecond

const (
	// grace is how much longer than its scripts a worker may take for an answer. laneWait is how long a filter waits
	// for a worker.
	grace, laneWait = 500 * time.Millisecond, 2 * time.Second
	// maxAtOnce is how many times the budget of an expression one question may take. A filter that takes longer
	// continues in another question, so that others get their turn.
	maxAtOnce = 4
)

// Engine evaluates filters that users define. It parses each definition once; a Pool runs it. It is safe for concurrent
// use.
type Engine struct {
	opts    Options
	log     *slog.Logger
	seconds prometheus.Histogram
	errors  *prometheus.CounterVec
	filters sync.Map // *resource.EventFilter to *compiled
	// mutators are the JavaScript ones: *resource.Mutator to *mutation.
	mutators sync.Map
	laneWait time.Duration // the constant, unless a test sets another
}

// events returns the events that the definitions of an author may look up.
func (e *Engine) events(author *resource.Author) Events {
	if e.opts.Permit == nil || e.opts.Events == nil {
		return e.opts.Events
	}
	return e.opts.Permit(author, e.opts.Events)
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
		opts: opts, log: opts.Logger.With("component", "filter"), laneWait: laneWait,
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lapwing_filter_seconds", Help: "Asking one filter that a user defined about one event.",
			Buckets: prometheus.ExponentialBuckets(0.000004, 4, 9),
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapwing_filter_errors_total",
			Help: "Expressions of filters that gave no answer and were ignored: not readable, thrown, out of time, out of memory, suspended, " +
				"paused or set aside for that, without a free worker in time (busy), or without a worker; also hours that cannot be read, " +
				"and assets that are missing or fail.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{"syntax", "thrown", "timeout", "memory", "suspended", "busy", "aside", "worker", "window", "asset"} {
		e.errors.WithLabelValues(reason)
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(e.seconds, e.errors)
	}
	return e
}

// compiled is a parsed definition.
type compiled struct {
	def        *resource.EventFilter
	allow      bool
	windows    *windows
	windowsErr error
	libraries  libraries
	allowance  allowance

	mu   sync.Mutex // guards told
	told map[string]bool
}

// pace decides whether a definition may use a quick lane: its last run was quick, and it did not need more than
// quickTotal for some time.
type pace struct {
	last atomic.Bool  // the last run was quick
	long atomic.Int64 // until when it avoids the quick lanes, Unix nanoseconds
}

func (p *pace) quick() bool { return p.last.Load() && time.Now().UnixNano() >= p.long.Load() }

func (p *pace) ran(took time.Duration) { p.last.Store(took < slow) }

func (p *pace) wasLong() { p.long.Store(time.Now().Add(longFor).UnixNano()) }

// allowance bounds the CPU time of one definition's slow runs in a minute.
type allowance struct {
	pace

	mu     sync.Mutex    // guards the fields below
	minute int64         // the minute of slowed, Unix minutes
	slowed time.Duration // CPU time of slow runs in this minute
}

// spent reports whether the allowance is used up.
func (a *allowance) spent(of time.Duration) bool {
	minute := time.Now().Unix() / 60
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.minute != minute {
		a.minute, a.slowed = minute, 0
	}
	return a.slowed >= of
}

// take counts the CPU time of a run if it was slow.
func (a *allowance) take(took time.Duration) {
	a.ran(took)
	if took < slow {
		return
	}
	a.mu.Lock()
	a.slowed += took
	a.mu.Unlock()
}

func (c *compiled) definer() Definer {
	return Definer{"filter", c.def.Metadata.Namespace, c.def.Metadata.Name}
}

func (e *Engine) compiled(def *resource.EventFilter) *compiled {
	if c, ok := e.filters.Load(def); ok {
		return c.(*compiled)
	}
	c := &compiled{def: def, allow: def.Action != "deny", told: map[string]bool{}}
	c.windows, c.windowsErr = parseWindows(def.When)
	c.libraries = libraries{
		namespace: def.Metadata.Namespace, assets: def.RuntimeAssets,
		failed: func(reason, source string, err error) { e.failed(c, reason, source, err) },
		define: func(files []scriptFile) *definition {
			return newDefinition(c.definer(), c.allow, def.Expressions, nil, files)
		},
	}
	known, _ := e.filters.LoadOrStore(def, c)
	return known.(*compiled)
}

// Keep forgets all filters except these.
func (e *Engine) Keep(defs iter.Seq[*resource.EventFilter]) { keep(&e.filters, defs) }

// Answer is a filter's answer about an event.
type Answer struct {
	Passes bool
	// Reason is set if no expression decided.
	Reason string
	// Asked are the evaluated expressions, in their order.
	Asked []Asked
}

// Asked is the result of one expression.
type Asked struct {
	Expression string
	// Denies reports that it decided. Err is the reason why it gave no answer and was ignored.
	Denies bool
	Err    error
	Saw    []Value
	Took   time.Duration
}

// Passes is Ask without the details.
func (e *Engine) Passes(def *resource.EventFilter, ev *resource.Event) bool {
	return e.Ask(context.Background(), def, ev).Passes
}

// Ask evaluates a filter for an event. A filter that allows passes the event within its hours if all its expressions
// are true; one that denies passes it outside of them if none is true. An expression without an answer is ignored, and
// so are invalid hours and all expressions with them: an event is rather let through than lost.
//
// The answer comes shortly after the budgets of the expressions at the latest: a worker that cannot be interrupted is
// killed. Only assets that must be fetched first take longer.
func (e *Engine) Ask(ctx context.Context, def *resource.EventFilter, ev *resource.Event) Answer {
	return e.AskAt(ctx, def, ev, e.opts.Now())
}

// AskAt is Ask as if it were another time.
func (e *Engine) AskAt(ctx context.Context, def *resource.EventFilter, ev *resource.Event, now time.Time) Answer {
	c := e.compiled(def)
	begin := time.Now()
	defer func() { e.seconds.Observe(time.Since(begin).Seconds()) }()
	if c.windowsErr != nil {
		e.failed(c, "window", "", c.windowsErr)
		return Answer{Passes: true, Reason: "its hours cannot be read", Asked: []Asked{{Err: c.windowsErr}}}
	}
	if c.windows != nil && c.windows.contain(now) != c.allow {
		if c.allow {
			return Answer{Reason: "it is outside of its hours"}
		}
		return Answer{Reason: "it is within its hours"}
	}
	if c.allowance.spent(e.opts.SlowShare) { // checked before it delays others
		e.failed(c, "suspended", "", errSuspended)
		return Answer{Passes: true, Asked: []Asked{{Err: errSuspended}}}
	}
	if len(def.Expressions) == 0 {
		return Answer{Passes: true}
	}
	return e.evaluate(ctx, c, ev, now)
}

// evaluate evaluates all expressions that are not set aside.
func (e *Engine) evaluate(ctx context.Context, c *compiled, ev *resource.Event, now time.Time) Answer {
	b := c.libraries.get(ctx, e)
	answer := Answer{Passes: true, Asked: make([]Asked, 0, len(c.def.Expressions))}
	told := func(i int, err error) {
		e.failed(c, reason(err), c.def.Expressions[i], err)
		answer.Asked = append(answer.Asked, Asked{Expression: c.def.Expressions[i], Err: err})
	}
	only := make([]int, 0, len(c.def.Expressions))
	for i := range c.def.Expressions {
		if _, why := e.opts.Pool.suspicion(c.def.Metadata.Namespace, b.def.keys[i]); why != nil {
			told(i, why)
			continue
		}
		only = append(only, i)
	}
	if len(only) == 0 {
		return answer
	}
	encoded := appendEvent(nil, ev)
	j := &job{
		by: c.definer(), def: b.def, pace: &c.allowance.pace, wait: e.laneWait,
		text: func(i int) string { return c.def.Expressions[i] },
		question: func(only []int, quick bool) *asked {
			total := time.Duration(min(len(only), maxAtOnce)) * e.opts.Budget
			if len(b.files) > 0 {
				total += librariesBudget
			}
			if quick {
				total = quickTotal
			}
			body := make([]byte, 0, len(encoded)+64)
			body = appendQuestion(body, b.def, now.Unix(), e.opts.Budget, total, only, e.opts.Events != nil)
			return &asked{body: append(body, encoded...), look: lookIn(e.events(c.def.Author), e.opts.InCalendar, ev), patience: longest(total) + grace}
		},
	}
	j.got = func(only []int, body []byte, err error) (left []int, more bool) {
		if err != nil {
			for _, i := range only {
				told(i, err)
			}
			return nil, true
		}
		r := readFields(body)
		for _, f := range r.failedFiles() {
			e.failed(c, "asset", f.name, errors.New(f.text))
		}
		for len(r.Rest) > 0 && answer.Passes && len(only) > 0 {
			v := r.verdict()
			if r.Err() != nil || v.source != only[0] {
				told(only[0], errFrame)
			} else {
				e.decided(c, &answer, &v)
			}
			only = only[1:]
		}
		return only, answer.Passes
	}
	e.opts.Pool.run(ctx, j, only)
	return answer
}

// decided notes an expression's result.
func (e *Engine) decided(c *compiled, answer *Answer, v *verdict) {
	asked := Asked{Expression: c.def.Expressions[v.source], Err: v.err, Saw: v.saw, Took: v.took}
	c.allowance.take(v.cpu)
	if v.err != nil {
		e.failed(c, reason(v.err), asked.Expression, v.err)
		if errors.Is(v.err, errMemory) {
			c.allowance.take(e.opts.SlowShare + slow) // once is enough
		}
	} else if v.truth != c.allow {
		asked.Denies, answer.Passes = true, false
	}
	answer.Asked = append(answer.Asked, asked)
}

func reason(err error) string {
	switch {
	case errors.Is(err, errTimeout):
		return "timeout"
	case errors.Is(err, errSuspended):
		return "suspended"
	case errors.Is(err, errBusy):
		return "busy"
	case errors.Is(err, errSyntax):
		return "syntax"
	case errors.Is(err, errAside), errors.Is(err, errPaused):
		return "aside"
	case errors.Is(err, errNoPool), errors.Is(err, errStopped):
		return "worker"
	case errors.As(err, new(*diedError)):
		return "worker"
	case errors.Is(err, errMemory):
		return "memory"
	}
	return "thrown"
}

// failed counts failures, and logs each reason once per definition.
func (e *Engine) failed(c *compiled, reason, source string, err error) {
	e.errors.WithLabelValues(reason).Inc()
	c.mu.Lock()
	again := c.told[reason]
	c.told[reason] = true
	c.mu.Unlock()
	if again {
		return
	}
	args := []any{"namespace", c.def.Metadata.Namespace, "filter", c.def.Metadata.Name, "reason", reason}
	if source != "" { // it may concern the whole filter
		args = append(args, "expression", cut(source))
	}
	e.log.Warn("filter's expression is ignored", append(args, "err", err)...)
}

// Package aggregator makes series of other series by carbon's aggregation-rules.conf, for example the sum of a metric
// of all hosts every 5 seconds.
//
// The ingest path calls Match once per new series and Input.Add for each of its points; the aggregator's goroutine
// calls Options.Emit with the results. An interval has the last value of each source. Its result is emitted once, Grace
// after its end, with the time of its begin, and again in full when late values change it. An interval is kept for
// MaxIntervals × the rule's frequency; later values are dropped and counted. Options.Carbon chooses carbon's own way
// instead.
//
// All inputs of an output must meet in one Aggregator: OutputNames tells a cluster which outputs a series belongs to.
// After a restart, or a change of a rule, the interval that was under way has only the values that came since.
package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/internal/filewatch"
	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Options are what New needs. Zero values are the defaults.
type Options struct {
	// RulesFile is aggregation-rules.conf; an empty one is no rules. Every is the time between two looks at it, default 10
	// s.
	RulesFile string
	Every     time.Duration
	// Emit takes the results. The aggregator's goroutine calls it without a lock; as long as it blocks, results wait. It
	// must not give them back to the aggregator.
	Emit func(name string, unixSeconds int64, value float64)
	// Changed, if set, is called by the watcher's goroutine after the rules have changed. The caller then calls Match
	// again for each series, before its next point; Inputs of rules that are gone drop their values.
	Changed func()

	// Grace is how long after the end of an interval its result is emitted. The default is half of the frequency, but at
	// most 5 s: senders with the same interval report within a second or two of its end, a result should not be later than
	// the next one is due, and what comes later still is corrected. A negative one is none.
	Grace time.Duration
	// MaxIntervals is how many intervals before the current one are kept, default 5 (MAX_AGGREGATION_INTERVALS).
	MaxIntervals int
	// Future is how far ahead of the clock the time of a point may be, default 1 min. Later points are dropped.
	Future time.Duration
	// AggregatesOnly makes Forward refuse all series (FORWARD_ALL = False).
	AggregatesOnly bool

	// Carbon chooses the semantics of carbon: each point counts, also a second one of the same source; an output is
	// computed every frequency seconds since it was first seen, whether an interval has ended or not, and emitted if
	// points came; and a point for an interval that is no longer kept opens it again. Grace and Future do not apply.
	Carbon bool

	// MaxOutputs, MaxInputs and MaxPoints bound outputs, sources of all outputs together, and with Carbon the points of an
	// interval. Defaults 100,000, 3,000,000 and 1,000,000.
	MaxOutputs, MaxInputs, MaxPoints int

	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

func (o *Options) setDefaults() error {
	for _, d := range []struct {
		name           string
		value          *time.Duration
		standard, most time.Duration
	}{{"Every", &o.Every, 10 * time.Second, 24 * time.Hour}, {"Future", &o.Future, time.Minute, 24 * time.Hour}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < 0 || *d.value > d.most {
			return fmt.Errorf("the option %s is %s, it must be from 0 to %s", d.name, *d.value, d.most)
		}
	}
	for _, n := range []struct {
		name           string
		value          *int
		standard, most int
	}{{"MaxIntervals", &o.MaxIntervals, 5, 1000}, {"MaxOutputs", &o.MaxOutputs, 100_000, 100_000_000},
		{"MaxInputs", &o.MaxInputs, 3_000_000, 1_000_000_000}, {"MaxPoints", &o.MaxPoints, 1_000_000, 1_000_000_000}} {
		if *n.value == 0 {
			*n.value = n.standard
		}
		if *n.value < 1 || *n.value > n.most {
			return fmt.Errorf("the option %s is %d, it must be from 1 to %d", n.name, *n.value, n.most)
		}
	}
	switch {
	case o.Emit == nil:
		return errors.New("the option Emit is not set")
	case o.Logger == nil:
		return errors.New("the option Logger is not set")
	case o.Grace > 24*time.Hour:
		return fmt.Errorf("the option Grace is %s, it must be at most a day", o.Grace)
	}
	return nil
}

// grace returns the nanoseconds between the end of an interval and its result.
func (o *Options) grace(frequency int64) int64 {
	switch {
	case o.Grace < 0:
		return 0
	case o.Grace > 0:
		return int64(o.Grace)
	}
	return min(frequency*int64(time.Second)/2, int64(5*time.Second))
}

// Aggregator has the outputs.
type Aggregator struct {
	options Options
	log     *rarelog.Log
	metrics metrics
	file    *filewatch.Content[*Rules]

	rules      atomic.Pointer[Rules]
	generation atomic.Uint64
	inputs     atomic.Int64 // slots in use of all outputs
	sent       atomic.Uint64
	received   atomic.Uint64

	// mu guards the fields below and rule.retired. It is locked before the mutex of an output.
	mu      sync.Mutex
	outputs map[string]*output
	queue   schedule
	groups  map[int64]*task // by frequency; not with Carbon
	retired []*output       // outputs of rules that are gone, whose complete intervals are still to be emitted
	cancel  context.CancelFunc
	done    chan struct{}
	ended   bool

	wake chan struct{} // the first task may be due earlier than before
}

// New reads the rules; an error in them is returned.
func New(options Options) (*Aggregator, error) {
	if err := options.setDefaults(); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a := &Aggregator{options: options, log: rarelog.New(options.Logger), outputs: map[string]*output{},
		groups: map[int64]*task{}, wake: make(chan struct{}, 1)}
	a.rules.Store(&Rules{})
	a.metrics = newMetrics(options.Registerer, a)
	var err error
	a.file, err = filewatch.NewContent(filewatch.ContentOptions[*Rules]{
		What: "aggregation rules", Paths: []string{options.RulesFile}, Every: options.Every,
		Load:    func() (*Rules, []filewatch.Warning, error) { return Load(options.RulesFile) },
		Changed: a.SetRules, Logger: options.Logger, Registerer: options.Registerer,
		Reloads: prometheus.CounterOpts{Name: "lapwing_metric_aggregator_reloads_total",
			Help: "Reads of a changed file of aggregation rules, by result; after an error the old rules stay."}})
	if err != nil {
		return nil, err
	}
	a.SetRules(a.file.Current())
	return a, nil
}

// Start starts the goroutines. It does nothing the second time, or after Stop.
func (a *Aggregator) Start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.done = cancel, make(chan struct{})
	a.file.Start()
	go a.run(ctx, a.done)
}

// Stop emits the results of the intervals that have ended, without waiting for Grace, and forgets those under way: half
// of their values would only replace what another server, or this one after its start, has of them. It may be called
// twice, and before Start. Values that are added later are lost.
func (a *Aggregator) Stop(ctx context.Context) error {
	err := a.file.Stop(ctx)
	a.mu.Lock()
	a.ended = true
	done := a.done
	if a.cancel != nil {
		a.cancel()
	}
	a.mu.Unlock()
	if done == nil {
		return err
	}
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("wait for the aggregator: %w", ctx.Err()))
	}
}

// SetRules replaces the rules. Outputs of rules that stay, with the same text, keep their values. The complete
// intervals of all others are emitted, and the rest of them is lost.
func (a *Aggregator) SetRules(next *Rules) {
	a.mu.Lock()
	old := map[ruleText]*rule{}
	for _, r := range a.rules.Load().rules {
		if old[r.ruleText] == nil {
			old[r.ruleText] = r
		}
		r.retired = true
	}
	rules := &Rules{}
	for _, r := range next.rules {
		same := old[r.ruleText]
		if same == nil {
			own := *r // next may be another aggregator's as well
			same = &own
			old[r.ruleText] = same
		}
		same.retired = false
		rules.rules = append(rules.rules, same)
	}
	for name, o := range a.outputs {
		if o.rule.retired {
			delete(a.outputs, name)
			a.unschedule(o)
			a.retired = append(a.retired, o)
		}
	}
	a.rules.Store(rules)
	first := a.generation.Add(1) == 1
	a.mu.Unlock()
	a.wakeUp()
	if !first && a.options.Changed != nil {
		a.options.Changed()
	}
}

// Generation changes when the rules change. A caller that keeps what Match has returned reads it before Match.
func (a *Aggregator) Generation() uint64 { return a.generation.Load() }

// OutputNames returns the names of the outputs that a series belongs to, each once, in the order of the rules.
func (a *Aggregator) OutputNames(name string) []string { return a.rules.Load().names(name) }

// Match returns a series' places in the outputs of all rules that match its name, and nil if none does. It is called
// once per series and Generation; a second call returns other Inputs for the same places.
func (a *Aggregator) Match(name string) []*Input {
	if name == "" {
		return nil
	}
	var inputs []*Input
	dots := strings.Count(name, ".")
	for _, r := range a.rules.Load().rules {
		outputName, ok := r.name(name, dots)
		if !ok {
			continue
		}
		o := a.output(r, outputName)
		if o == nil || !a.options.Carbon && slices.ContainsFunc(inputs, func(in *Input) bool { return in.out.Load() == o }) {
			continue
		}
		in := &Input{aggregator: a, name: name}
		in.out.Store(o)
		inputs = append(inputs, in)
	}
	return inputs
}

// Forward tells whether the points of a series are stored as well: all are unless AggregatesOnly is set, except when
// the series has the name of an output that it belongs to.
func (a *Aggregator) Forward(name string, inputs []*Input) bool {
	return !a.options.AggregatesOnly &&
		!slices.ContainsFunc(inputs, func(in *Input) bool { return in.out.Load().name == name })
}

// output returns the output of a rule, a new one if there is none. It returns nil if the rule is gone, or if there are
// too many outputs.
func (a *Aggregator) output(r *rule, name string) *output {
	a.mu.Lock()
	o := a.outputs[name]
	many := o == nil && len(a.outputs) >= a.options.MaxOutputs
	switch {
	case r.retired:
		o, many = nil, false
	case o == nil && !many:
		o = &output{name: name, rule: r}
		if !a.options.Carbon {
			o.slots = map[string]int32{}
		}
		a.outputs[name] = o
		a.schedule(o)
	}
	a.mu.Unlock()
	if many {
		a.metrics.refusedOutputs.Inc()
		a.log.Warn("there are too many outputs of aggregation rules", "", "output", name, "most", a.options.MaxOutputs)
	}
	if o != nil && (o.rule.frequency != r.frequency || o.rule.method != r.method) {
		a.log.Warn("aggregation rules with different methods or frequencies have the same output: the first counts", name,
			"output", name, "input", o.rule.input, "other_input", r.input)
	}
	return o
}

// Stats are figures for carbon's own metrics.
type Stats struct {
	Outputs int // allocatedBuffers
	Inputs  int
	Points  int    // bufferedDatapoints
	Sent    uint64 // aggregateDatapointsSent, since the start
	// Received is the number of values added to all outputs since the start, up to the last computation of each.
	Received uint64
}

// Stats returns the figures of now.
func (a *Aggregator) Stats() Stats {
	a.mu.Lock()
	outputs := make([]*output, 0, len(a.outputs))
	for _, o := range a.outputs {
		outputs = append(outputs, o)
	}
	a.mu.Unlock()
	s := Stats{Outputs: len(outputs), Inputs: int(a.inputs.Load()), Sent: a.sent.Load(), Received: a.received.Load()}
	for _, o := range outputs {
		s.Points += o.points()
	}
	return s
}

// Input is a series' place in an output.
type Input struct {
	aggregator *Aggregator
	name       string
	out        atomic.Pointer[output]

	// slot is where the output had the series last; it counts only if the slot has the series' name. Guarded by the mutex
	// of out.
	slot int32
}

// Output returns the name of the output.
func (in *Input) Output() string { return in.out.Load().name }

// Add adds a value. Several goroutines may call it. NaN is ignored.
func (in *Input) Add(unixSeconds int64, value float64) {
	if value != value {
		return
	}
	a := in.aggregator
	for range 3 {
		o := in.out.Load()
		o.mu.Lock()
		if o.dead {
			o.mu.Unlock()
			if !a.revive(in, o) {
				return
			}
			continue
		}
		reason := o.add(a, in, unixSeconds, value)
		o.mu.Unlock()
		if reason != kept {
			a.dropped(reason, o, unixSeconds)
		}
		return
	}
	a.dropped(stale, in.out.Load(), unixSeconds)
}

// revive gives an Input a new output in the place of a dead one.
func (a *Aggregator) revive(in *Input, dead *output) bool {
	o := a.output(dead.rule, dead.name)
	if o == nil {
		a.dropped(stale, dead, 0)
		return false
	}
	in.out.CompareAndSwap(dead, o)
	return true
}

// dropped counts a value that was dropped.
func (a *Aggregator) dropped(reason reason, o *output, unixSeconds int64) {
	a.metrics.dropped[reason].Inc()
	a.log.Warn("values for aggregation are dropped", reasons[reason], "reason", reasons[reason], "output", o.name,
		"time", unixSeconds)
}

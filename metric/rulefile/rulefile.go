// Package rulefile reads Prometheus rule files and evaluates their groups: results of recording rules go to the store,
// and the states of alerts go to the caller, who makes events of them.
//
// Files are read, templates expanded and rules evaluated by Prometheus' own packages, so rules mean here what they mean
// there. Three things differ. All states are reported, pending ones too, and each change exactly once. The states
// survive a restart by a snapshot that the caller keeps, and not by the series ALERTS_FOR_STATE: a firing alert goes on
// without a gap, a pending one with the time that it has waited, and one that ended in between is reported as inactive.
// (An alert that only keep_firing_for held ends at the first evaluation after a restart.) And a rule whose evaluation
// fails changes no state.
package rulefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/lapwing-monitoring/lapwing/internal/rarelog"
)

// Writer takes the results of rules under their stored names (see package promname). It does not keep name.
type Writer interface {
	Add(name []byte, unixMilli int64, value float64) error
	Flush() error
}

// Options of an Evaluator. Zero values are the defaults.
type Options struct {
	// Engine runs the expressions, and Queryable has the series. Both are required.
	Engine    promql.QueryEngine
	Queryable storage.Queryable
	// Writer takes the results of rules. Groups use it at the same time, so the Evaluator calls it under a lock. It is
	// required.
	Writer Writer
	// Alert gets the states of alerts. The calls for one rule come one after the other, those of different groups at the
	// same time. The group waits for it. It must not call Update, Start or Stop. It is required.
	Alert func(AlertState)
	// Repeat is how often the state of an alert that is not inactive is reported without a change. The default is 1 min.
	Repeat time.Duration
	// WithoutAlerts leaves out the series ALERTS.
	WithoutAlerts bool

	// Interval is for groups that have none. The default is 1 min.
	Interval time.Duration
	// ExternalURL and ExternalLabels are for templates.
	ExternalURL    *url.URL
	ExternalLabels map[string]string
	// MaxConcurrent bounds the queries at the same time. The default is 4.
	MaxConcurrent int
	// MaxResults bounds the series in the result of a rule, and so its alerts. The default is 10,000.
	MaxResults int

	// Snapshot is what Snapshot returned before. Nil begins without states.
	Snapshot []byte
	// OutageTolerance is the greatest age of a snapshot whose alerts go on. Alerts of an older one begin anew. The
	// default is 1 h.
	OutageTolerance time.Duration

	// Log is required.
	Log *slog.Logger
	// Registerer takes the metrics; nil takes none.
	Registerer prometheus.Registerer
}

// standardInterval is for groups that have none.
const standardInterval = time.Minute

func or[T int | time.Duration](value *T, standard T) {
	if *value == 0 {
		*value = standard
	}
}

func (o *Options) fill() error {
	or(&o.Repeat, time.Minute)
	or(&o.Interval, standardInterval)
	or(&o.MaxConcurrent, 4)
	or(&o.MaxResults, 10_000)
	or(&o.OutageTolerance, time.Hour)
	if o.ExternalURL == nil {
		o.ExternalURL = &url.URL{}
	}
	missing := ""
	switch {
	case o.Engine == nil:
		missing = "Engine"
	case o.Queryable == nil:
		missing = "Queryable"
	case o.Writer == nil:
		missing = "Writer"
	case o.Alert == nil:
		missing = "Alert"
	case o.Log == nil:
		missing = "Log"
	}
	if missing != "" {
		return fmt.Errorf("rules: no %s", missing)
	}
	if o.Repeat < 0 || o.Interval < 0 || o.MaxConcurrent < 0 || o.MaxResults < 0 || o.OutageTolerance < 0 {
		return errors.New("rules: Repeat, Interval, MaxConcurrent, MaxResults or OutageTolerance is negative")
	}
	return nil
}

// Evaluator evaluates the groups of rule files.
type Evaluator struct {
	o       Options
	manager *rules.Manager
	metrics metrics
	log     *rarelog.Log
	states  states
	queries chan struct{}
	write   writer

	ctx    context.Context // of all queries
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex // guards the fields below, held during an update
	state state
	// files wait for Start.
	files  []File
	groups map[string]*rulefmt.RuleGroups
}

type state uint8

const (
	created state = iota
	started
	stopped
)

// New returns an Evaluator without rules.
func New(o Options) (*Evaluator, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	e := &Evaluator{o: o, log: rarelog.New(o.Log), queries: make(chan struct{}, o.MaxConcurrent)}
	if err := e.states.load(o.Snapshot, o.OutageTolerance, time.Now()); err != nil {
		return nil, err
	}
	// After all errors: the caller may try again without the snapshot.
	e.metrics = newMetrics(o.Registerer)
	e.write = writer{to: o.Writer, withoutAlerts: o.WithoutAlerts, metrics: &e.metrics, log: e.log}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.manager = rules.NewManager(&rules.ManagerOptions{
		ExternalURL: o.ExternalURL,
		QueryFunc:   e.query,
		NotifyFunc:  func(context.Context, string, ...*rules.Alert) {},
		Context:     e.ctx,
		Appendable:  &e.write,
		// The manager's own restore is not used: no rule has a "for" above this period.
		ForGracePeriod: math.MaxInt64,
		Queryable: storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
			return storage.NoopQuerier(), nil
		}),
		ResendDelay: time.Minute,
		Logger:      o.Log.With("part", "rules"),
		GroupLoader: loader(func(name string) *rulefmt.RuleGroups { return e.groups[name] }),
	})
	return e, nil
}

// loader gives the manager the groups of a file that were read before.
type loader func(name string) *rulefmt.RuleGroups

// Load implements rules.GroupLoader.
func (l loader) Load(name string, _ bool) (*rulefmt.RuleGroups, []error) {
	if g := l(name); g != nil {
		return g, nil
	}
	return nil, []error{fmt.Errorf("there is no rule file %q", name)}
}

// Parse implements rules.GroupLoader.
func (loader) Parse(query string) (parser.Expr, error) { return parser.ParseExpr(query) }

// Update replaces the rules. If a file has errors it returns all of them, and the rules stay. Groups that are the same
// go on. Alerts of rules that are gone are reported as inactive.
func (e *Evaluator) Update(files []File) error {
	groups, err := parse(files)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == stopped {
		return errors.New("update rules: the evaluator is stopped")
	}
	e.files, e.groups = files, groups
	if e.state == created {
		return nil
	}
	return e.update()
}

// update gives the rules to the manager. The caller holds mu.
func (e *Evaluator) update() error {
	names := make([]string, len(e.files))
	for i, f := range e.files {
		names[i] = f.Name
	}
	if err := e.manager.Update(e.o.Interval, names, labels.FromMap(e.o.ExternalLabels), e.o.ExternalURL.String(),
		e.evaluate); err != nil {
		return fmt.Errorf("update rules: %w", err)
	}
	e.metrics.groups.Set(float64(len(e.manager.RuleGroups())))
	there := map[string]bool{}
	for _, g := range e.manager.RuleGroups() {
		for _, r := range ruleKeys(g) {
			there[r.key] = true
		}
	}
	e.report(e.states.prune(there, time.Now()))
	return nil
}

// Start starts to evaluate.
func (e *Evaluator) Start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != created {
		return errors.New("start rules: they were started or stopped before")
	}
	e.state = started
	e.done.Go(e.manager.Run)
	return e.update()
}

// Stop stops to evaluate. It waits for the evaluations that run, and cancels their queries when ctx ends.
func (e *Evaluator) Stop(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.cancel()
	if e.state == started {
		defer context.AfterFunc(ctx, e.cancel)()
		e.manager.Stop()
		e.done.Wait()
	}
	e.state = stopped
	return nil
}

// RuleGroups returns the groups, for the Prometheus API.
func (e *Evaluator) RuleGroups() []*rules.Group { return e.manager.RuleGroups() }

// AlertingRules returns the alerting rules, for the Prometheus API.
func (e *Evaluator) AlertingRules() []*rules.AlertingRule { return e.manager.AlertingRules() }

// Unseen returns the names of the alerting rules whose alerts are not known: they have not been evaluated without an
// error since they are there.
func (e *Evaluator) Unseen() map[string]bool {
	unseen := map[string]bool{}
	for _, g := range e.manager.RuleGroups() {
		for _, r := range ruleKeys(g) {
			if _, alerting := r.rule.(*rules.AlertingRule); alerting && !e.states.hasSeen(r.key) {
				unseen[r.rule.Name()] = true
			}
		}
	}
	return unseen
}

// Groups returns the groups of files, sorted by file and name, for the Prometheus API. They are not evaluated.
func Groups(files []File) ([]*rules.Group, error) {
	parsed, err := parse(files)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	m := rules.NewManager(&rules.ManagerOptions{
		ExternalURL: &url.URL{}, Context: context.Background(), Logger: slog.New(slog.DiscardHandler),
		GroupLoader: loader(func(name string) *rulefmt.RuleGroups { return parsed[name] }),
	})
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	groups, errs := m.LoadGroups(standardInterval, labels.EmptyLabels(), "", nil, false, names...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("read rules: %w", errors.Join(errs...))
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *rules.Group) int {
		return cmp.Or(cmp.Compare(a.File(), b.File()), cmp.Compare(a.Name(), b.Name()))
	}), nil
}

// query runs an expression of a rule or a template.
func (e *Evaluator) query(ctx context.Context, text string, at time.Time) (promql.Vector, error) {
	select {
	case e.queries <- struct{}{}:
		defer func() { <-e.queries }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	result, err := rules.EngineQueryFunc(e.o.Engine, e.o.Queryable)(ctx, text, at)
	if err != nil {
		return nil, err
	}
	if len(result) > e.o.MaxResults {
		return nil, fmt.Errorf("the result has %d series: the limit is %d", len(result), e.o.MaxResults)
	}
	return result, nil
}

// evaluate evaluates a group at a time, then reports what has changed in its alerts.
func (e *Evaluator) evaluate(ctx context.Context, g *rules.Group, at time.Time) {
	begin := time.Now()
	rules.DefaultEvalIterationFunc(ctx, g, at)
	e.metrics.duration.Observe(time.Since(begin).Seconds())
	if ctx.Err() != nil {
		return // The queries were cancelled.
	}
	for _, r := range ruleKeys(g) {
		err := r.rule.LastError()
		result := "ok"
		if err != nil {
			result = "failed"
		}
		e.metrics.evaluations.WithLabelValues(result).Inc()
		if alerting, ok := r.rule.(*rules.AlertingRule); ok && err == nil && !r.rule.GetEvaluationTimestamp().IsZero() {
			e.report(e.states.observe(g, alerting, r.key, at, e.o.Repeat))
		}
	}
	if err := e.write.flush(); err != nil {
		e.log.Warn("cannot write the results of rules", "flush", "group", g.Name(), "err", err)
	}
	pending, firing := e.states.count()
	e.metrics.alerts.WithLabelValues("pending").Set(float64(pending))
	e.metrics.alerts.WithLabelValues("firing").Set(float64(firing))
}

func (e *Evaluator) report(all []AlertState) {
	for _, s := range all {
		if s.Changed {
			e.metrics.transitions.WithLabelValues(s.State.String()).Inc()
		}
		e.o.Alert(s)
	}
}

// Snapshot returns the states of all alerts as JSON, for Options.Snapshot after a restart. The caller stores it from
// time to time, and after Stop.
func (e *Evaluator) Snapshot() ([]byte, error) { return e.states.snapshot(time.Now()) }

// Alerts returns the states of all alerts that are not inactive, sorted by file, group, rule and labels.
func (e *Evaluator) Alerts() []AlertState { return e.states.all() }

// ruleKey is a rule with a text that identifies it over changes of its expression.
type ruleKey struct {
	rule rules.Rule
	key  string
}

func ruleKeys(g *rules.Group) []ruleKey {
	var keys []ruleKey
	seen := map[string]int{}
	for _, r := range g.Rules() {
		// Quoted, because the key is in snapshots, and JSON keeps only UTF-8.
		key := fmt.Sprintf("%q %q %q %s", g.File(), g.Name(), r.Name(), r.Labels())
		keys = append(keys, ruleKey{r, fmt.Sprintf("%s %d", key, seen[key])})
		seen[key]++
	}
	return keys
}

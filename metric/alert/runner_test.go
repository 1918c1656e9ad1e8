package alert

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// world holds definitions, events and series in memory: a runner's source, Intake and Query.
type world struct {
	mu        sync.Mutex
	defs      []*resource.MetricCheck
	events    map[state.Key]*resource.Event
	series    map[string]float64 // the value from now on; NaN for none
	changed   func()
	submitted []string // entity/check status
	deleted   []string
	queries   int
	running   int           // queries
	atOnce    int           // the most queries at a time
	slow      chan struct{} // if not nil, queries wait until it is closed
	broken    error         // of queries
}

func newWorld() *world {
	return &world{events: map[state.Key]*resource.Event{}, series: map[string]float64{}}
}

func (w *world) definitions() []*resource.MetricCheck {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.defs)
}

func (w *world) onChange(f func()) (cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = f
	return func() {}
}

func (w *world) define(defs ...*resource.MetricCheck) {
	w.mu.Lock()
	w.defs = defs
	f := w.changed
	w.mu.Unlock()
	if f != nil {
		f()
		synctest.Wait()
	}
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) Find(_ context.Context, namespace string, sel *selector.Selector) ([]state.Key, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []state.Key
	for k, ev := range w.events {
		if (namespace == "" || k.Namespace == namespace) && sel.Match(selector.Event(ev)) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b state.Key) int { return strings.Compare(a.Entity+"/"+a.Check, b.Entity+"/"+b.Check) })
	return out, nil
}

func (w *world) Event(k state.Key) (*resource.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ev, ok := w.events[k]
	if !ok {
		return nil, state.ErrNotFound
	}
	return ev, nil
}

func (w *world) Submit(ctx context.Context, ev *resource.Event) error {
	if err := errors.Join(ctx.Err(), ev.Validate()); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := state.Key{Namespace: ev.Entity.Metadata.Namespace, Entity: ev.Entity.Metadata.Name, Check: ev.Check.Metadata.Name}
	w.events[k] = ev
	w.submitted = append(w.submitted, fmt.Sprintf("%s/%s %d", k.Entity, k.Check, ev.Check.Status))
	return nil
}

func (w *world) DeleteEvent(_ context.Context, namespace, entity, check string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.events, state.Key{Namespace: namespace, Entity: entity, Check: check})
	w.deleted = append(w.deleted, entity+"/"+check)
	return nil
}

// query returns all series with one value for the whole time.
func (w *world) query(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]Series, error) {
	w.mu.Lock()
	w.queries++
	w.running++
	w.atOnce = max(w.atOnce, w.running)
	slow := w.slow
	w.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if err := errors.Join(ctx.Err(), w.broken); err != nil {
		return nil, err
	}
	var out []Series
	step := int64(def.Interval)
	for name, v := range w.series {
		s := Series{Name: name, Start: until - (until-from)/step*step, Step: step}
		for t := s.Start; t <= until; t += step {
			s.Values = append(s.Values, v)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Series) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// took returns what was submitted and deleted since the last call, sorted.
func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.submitted)
	slices.Sort(w.deleted)
	out := strings.Join(w.submitted, ", ")
	if len(w.deleted) > 0 {
		out += "; deleted " + strings.Join(w.deleted, ", ")
	}
	w.submitted, w.deleted = nil, nil
	return out
}

func (w *world) output(entity, check string) string {
	ev, err := w.Event(state.Key{Namespace: "default", Entity: entity, Check: check})
	if err != nil {
		return err.Error()
	}
	return ev.Check.Output
}

func runner(t *testing.T, w *world, acts func(namespace, name string) bool) *Runner {
	t.Helper()
	r, err := newRunner(Options{Intake: w, Query: w.query, Acts: acts, MaxResults: 5}, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start starts a runner, and returns what stops it.
func start(t *testing.T, r *Runner) (stop func()) {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		for range 2 {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

func pass(d time.Duration) {
	time.Sleep(d) // in the bubble of the test, so it takes no time
	synctest.Wait()
}

// load is a metric check with an entity for each series.
func load(name string, change func(*resource.MetricCheck)) *resource.MetricCheck {
	node := 0
	def := &resource.MetricCheck{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, Expr: "*.load", Interval: 10,
		Warning: above(5), Critical: above(10), EntityNode: &node,
	}
	if change != nil {
		change(def)
	}
	return def
}

// TestRunner follows two entities: they fail, one has no values and is given up, and the other resolves.
func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"], w.series["web2.load"] = 1, 7
		w.define(load("load", func(d *resource.MetricCheck) { d.AbsentFor = 60 }))
		start(t, runner(t, w, nil))
		if got := w.took(); got != "web1/load 0, web2/load 1" {
			t.Errorf("at the start came %q", got)
		}
		pass(9 * time.Second)
		if got := w.took(); got != "" {
			t.Errorf("before the interval came %q", got)
		}
		w.set(func() { w.series["web2.load"] = 12; delete(w.series, "web1.load") })
		pass(time.Second)
		if got := w.took(); got != "web1/load 3, web2/load 2" {
			t.Errorf("after the interval came %q", got)
		}
		pass(60 * time.Second)
		w.took()
		pass(10 * time.Second)
		if got := w.took(); got != "web1/load 0, web2/load 2; deleted web1/load" {
			t.Errorf("when web1 was absent for too long came %q", got)
		}
		w.set(func() { w.series["web2.load"] = 1 })
		pass(10 * time.Second)
		if got := w.took(); got != "web2/load 0" {
			t.Errorf("at the end came %q", got)
		}
	})
}

// TestRunnerFails breaks the queries: results become unknown once, and come back.
func TestRunnerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"] = 7
		w.define(load("load", nil))
		start(t, runner(t, w, nil))
		w.took()
		w.set(func() { w.broken = errors.New("its author may see no metrics") })
		pass(30 * time.Second)
		if got := w.took(); got != "web1/load 3" || !strings.Contains(w.output("web1", "load"), "may see no metrics") {
			t.Errorf("came %q, %q", got, w.output("web1", "load"))
		}
		w.set(func() { w.broken, w.slow = nil, make(chan struct{}) }) // now they take too long
		pass(20 * time.Second)
		if got := w.took(); got != "" {
			t.Errorf("while queries take too long came %q", got)
		}
		w.set(func() { w.slow = nil })
		pass(20 * time.Second)
		if got := w.took(); !strings.HasPrefix(got, "web1/load 1") {
			t.Errorf("at the end came %q", got)
		}
		w.set(func() {
			for i := range 6 {
				w.series[fmt.Sprintf("db%d.load", i)] = 1
			}
		})
		pass(10 * time.Second)
		if out := w.output("web1", "load"); !strings.Contains(out, "7 entities, more than 5") {
			t.Errorf("with too many entities the output is %q", out)
		}
	})
}

// TestRunnerDefinitions changes and deletes definitions, also while they are evaluated.
func TestRunnerDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"] = 7
		other := load("other", func(d *resource.MetricCheck) { d.Interval = 86400 })
		w.define(other)
		start(t, runner(t, w, nil))
		w.took()
		w.define(other, load("load", nil))
		if got := w.took(); got != "web1/load 1" {
			t.Errorf("after the definition came %q", got)
		}
		w.define(other, load("load", func(d *resource.MetricCheck) { d.Result.Check = "cpu" }))
		if got := w.took(); got != "web1/cpu 1, web1/load 0; deleted web1/load" {
			t.Errorf("after the change came %q", got)
		}
		w.define(other)
		if got := w.took(); got != "web1/cpu 0; deleted web1/cpu" {
			t.Errorf("after the deletion came %q", got)
		}

		slow := make(chan struct{})
		w.set(func() { w.slow = slow })
		w.define(other, load("load", nil))
		w.define(other)
		if got := w.took(); got != "" {
			t.Errorf("while it is evaluated came %q", got)
		}
		w.set(func() { w.slow = nil })
		close(slow)
		synctest.Wait()
		if got := w.took(); got != "web1/load 0, web1/load 1; deleted web1/load" {
			t.Errorf("after the deletion during an evaluation came %q", got)
		}

		slow = make(chan struct{})
		w.set(func() { w.slow = slow })
		w.define(other, load("load", nil))
		w.define(other, load("load", func(d *resource.MetricCheck) { d.Warning = above(8) }))
		w.set(func() { w.slow = nil })
		close(slow)
		synctest.Wait()
		ev, err := w.Event(state.Key{Namespace: "default", Entity: "web1", Check: "load"})
		if got := w.took(); got != "web1/load 0, web1/load 1" || err != nil || ev.Check.Status != 0 {
			t.Errorf("after the change during an evaluation came %q, and the event is %+v, %v", got, ev, err)
		}
		pass(2 * time.Minute)
		w.define()
		if got := w.took(); !strings.HasSuffix(got, "; deleted web1/load, web1/other") {
			t.Errorf("after all came %q", got)
		}
	})
}

// TestRunnerTakesOver has a second member act after the first: the lane's definition was deleted in between.
func TestRunnerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"] = 7
		w.define(load("load", nil), load("kept", nil))
		stop := start(t, runner(t, w, nil))
		stop()
		w.set(func() { w.defs = w.defs[1:] })
		stranger := state.Key{Namespace: "default", Entity: "web9", Check: "x"}
		ev := *w.events[state.Key{Namespace: "default", Entity: "web1", Check: "load"}]
		ev.Metadata.Annotations = nil
		w.set(func() { w.events[stranger] = &ev })
		w.took()
		var acts bool
		start(t, runner(t, w, func(string, string) bool { w.mu.Lock(); defer w.mu.Unlock(); return acts }))
		pass(2 * time.Minute)
		if got := w.took(); got != "" {
			t.Errorf("another member acts, and came %q", got)
		}
		w.set(func() { acts = true; w.series["web1.load"] = 1 })
		pass(10 * time.Second)
		if got := w.took(); got != "web1/kept 0" {
			t.Errorf("when it acts came %q", got)
		}
		pass(10 * time.Minute)
		if got := w.took(); !strings.Contains(got, "web1/load 0") || !strings.HasSuffix(got, "; deleted web1/load") {
			t.Errorf("within ten minutes came %q", got)
		}
		if _, err := w.Event(stranger); err != nil {
			t.Errorf("an event with the label alone: %v", err)
		}
	})
}

// TestRunnerBounds has more checks due than run at a time.
func TestRunnerBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"], w.slow = 7, make(chan struct{})
		var defs []*resource.MetricCheck
		for i := range 9 {
			defs = append(defs, load(fmt.Sprintf("load%d", i), nil))
		}
		w.define(defs...)
		stop := start(t, runner(t, w, nil))
		if w.atOnce != evaluating || w.queries != evaluating {
			t.Errorf("%d queries, %d at a time", w.queries, w.atOnce)
		}
		close(w.slow)
		synctest.Wait()
		if w.atOnce != evaluating || w.queries != 9 {
			t.Errorf("%d queries, %d at a time", w.queries, w.atOnce)
		}
		w.set(func() { w.slow = make(chan struct{}) })
		w.took()
		pass(10 * time.Second)
		stop()
		if got := w.took(); got != "" {
			t.Errorf("of cancelled evaluations came %q", got)
		}
	})
}

func TestRunnerPreview(t *testing.T) {
	w := newWorld()
	w.series["web1.load"] = 7
	r := runner(t, w, nil)
	p, err := r.Preview(t.Context(), load("load", nil), 1000, 2000)
	if err != nil || p.Fired != 0 || len(p.Findings) != 1 || p.Findings[0].Status != 1 || w.took() != "" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := r.Preview(t.Context(), load("load", nil), 2000, 1000); err == nil {
		t.Error("the end may be before the beginning")
	}
	if _, err := r.Preview(t.Context(), load("load", nil), 0, 10*maxMoments); err == nil {
		t.Error("a preview has no bound")
	}
	one := load("load", func(d *resource.MetricCheck) { d.EntityNode = nil })
	w.series = map[string]float64{"web1.load": math.NaN()}
	if p, err = r.Preview(t.Context(), one, 1000, 2000); err != nil || p.Fired != 1 || p.Findings[0].Entity != "load" || p.Findings[0].Status != 3 {
		t.Errorf("without values: %+v, %v", p, err)
	}
}

func TestStartStop(t *testing.T) {
	r := runner(t, newWorld(), nil)
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if err := r.Start(t.Context()); err == nil {
		t.Error("a stopped runner starts")
	}
	if _, err := New(Options{}); err == nil {
		t.Error("it needs nothing")
	}
}

package computed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/internal/testcomputed"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// plan is a definition of the tests: its results are events of its own check.
type plan struct {
	name     string
	interval uint32            // seconds; 0 for 10
	check    string            // "" for the name
	statuses map[string]uint32 // by entity
}

func (p *plan) checkName() string {
	if p.check != "" {
		return p.check
	}
	return p.name
}

// fails is a plan whose results have a status, for the entity web1.
func fails(name string, status uint32) *plan {
	return &plan{name: name, statuses: map[string]uint32{"web1": status}}
}

// logged is a log that is read while the runner writes.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// world is a runner of plans, with what it works on.
type world struct {
	*testcomputed.World[*plan]
	runner   *Runner
	registry *prometheus.Registry
	log      logged

	// The lock of World guards the fields below.
	away    bool          // another member acts
	slow    chan struct{} // if not nil, evaluations wait until it is closed
	failure error         // of evaluations
	begun   int           // evaluations
	running int           // evaluations
	atOnce  int           // the most evaluations at a time
	status  string        // of the last report: the names of the plans, each with its error
}

func newWorld(t *testing.T) *world {
	w := &world{World: testcomputed.New[*plan](), registry: prometheus.NewRegistry()}
	w.member(t)
	return w
}

// member gives the world another runner, as a second member or a restart does.
func (w *world) member(t *testing.T) {
	t.Helper()
	r, err := New(w.options())
	if err != nil {
		t.Fatal(err)
	}
	w.runner = r
	w.registry = prometheus.NewRegistry()
	w.registry.MustRegister(r.opts.Evaluations, r.opts.Seconds)
}

func (w *world) options() Options {
	return Options{
		Component: "plans", Kind: "plan", Deleted: "the plan was deleted", Label: "plan", Annotation: "lapwing.io/plan",
		Definitions: w.definitions, OnChange: w.OnChange, Source: w, Intake: w, Acts: w.acts,
		Concurrent: 4, Timeout: 30 * time.Second, Report: w.report, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		Evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evaluations_total"}, []string{"result"}),
		Seconds:     prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evaluate_seconds"}),
	}
}

func (w *world) definitions() (out []Definition) {
	for _, p := range w.Definitions() {
		interval := p.interval
		if interval == 0 {
			interval = 10
		}
		name := resource.Name{Namespace: "default", Name: p.name}
		out = append(out, Definition{Name: name, Interval: interval, Of: p,
			Evaluate: func(ctx context.Context) error { return w.evaluate(ctx, p, name, interval) }})
	}
	return out
}

func (w *world) acts(string, string) bool {
	w.Lock()
	defer w.Unlock()
	return !w.away
}

func (w *world) report(all []Status) {
	var parts []string
	for _, s := range all {
		parts = append(parts, fmt.Sprintf("%s %v", s.Of.(*plan).name, s.Err))
	}
	slices.Sort(parts)
	w.Set(func() { w.status = strings.Join(parts, ", ") })
}

// evaluate does what packages aggregate and alert do.
func (w *world) evaluate(ctx context.Context, p *plan, name resource.Name, interval uint32) error {
	w.Lock()
	w.begun++
	w.running++
	w.atOnce = max(w.atOnce, w.running)
	slow, failure := w.slow, w.failure
	w.Unlock()
	defer w.Set(func() { w.running-- })
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	mine, err := w.runner.Own(p.name)
	if err != nil {
		return err
	}
	own, err := w.Find(ctx, name.Namespace, mine)
	if err != nil {
		return err
	}
	if failure != nil {
		return errors.Join(failure, w.runner.Unknown(ctx, own, failure))
	}
	var events []*resource.Event
	for entity, status := range p.statuses {
		ev := w.runner.NewEvent(name, interval, &resource.ComputedResult{},
			&Result{Entity: entity, Check: p.checkName(), Status: status, Output: "computed", Figures: p.statuses})
		events = append(events, ev)
		own = slices.DeleteFunc(own, func(k state.Key) bool { return k == testcomputed.Key(ev) })
	}
	return errors.Join(w.runner.RetireAll(ctx, own, "it has no such result"), w.runner.Submit(ctx, events))
}

// want checks what came since the last call.
func (w *world) want(t *testing.T, what, want string) {
	t.Helper()
	if got := w.Took(); got != want {
		t.Errorf("%s came %q, want %q", what, got, want)
	}
}

// TestIntervals runs two definitions for half a minute.
func TestIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow, fast := fails("slow", 0), fails("fast", 0)
		fast.interval = 4
		w.Define(slow, fast)
		testcomputed.Start(t, w.runner)
		w.want(t, "at the start", "web1/fast 0, web1/slow 0")
		w.Set(func() { slow.statuses["web1"], fast.statuses["web1"] = 1, 1 })
		testcomputed.Pass(3 * time.Second)
		w.want(t, "between the intervals", "")
		testcomputed.Pass(time.Second)
		w.want(t, "after 4 s", "web1/fast 1")
		testcomputed.Pass(16 * time.Second)
		w.want(t, "in the next 16 s",
			"web1/fast 1, web1/fast 1, web1/fast 1, web1/fast 1, web1/slow 1, web1/slow 1")
	})
}

// TestMissedEvaluations has an evaluation that takes longer than two intervals.
func TestMissedEvaluations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slow = make(chan struct{})
		w.Define(fails("cpu", 1))
		testcomputed.Start(t, w.runner)
		testcomputed.Pass(25 * time.Second)
		w.want(t, "while it runs", "")
		w.Set(func() { close(w.slow); w.slow = nil })
		synctest.Wait()
		w.want(t, "when it ends", "web1/cpu 1")
		testcomputed.Pass(9 * time.Second)
		w.want(t, "before the next interval", "")
		testcomputed.Pass(time.Second)
		w.want(t, "an interval after its end", "web1/cpu 1")
	})
}

// TestDefinitions changes and deletes definitions, also while they are evaluated. Others are not evaluated early.
func TestDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		other := &plan{name: "other", interval: 86400, statuses: map[string]uint32{"web1": 1}}
		w.Define(other)
		testcomputed.Start(t, w.runner)
		w.Took()
		w.Define(other, fails("load", 1))
		w.want(t, "after the definition", "web1/load 1")
		w.Define(other, &plan{name: "load", check: "cpu", statuses: map[string]uint32{"web1": 1}})
		w.want(t, "after the change", "web1/cpu 1, web1/load 0; deleted web1/load")
		w.Define(other)
		w.want(t, "after the deletion", "web1/cpu 0; deleted web1/cpu")
		testcomputed.Pass(time.Minute)
		w.want(t, "a minute later", "")

		during := func(changes ...[]*plan) {
			slow := make(chan struct{})
			w.Set(func() { w.slow = slow })
			for _, defs := range changes {
				w.Define(defs...)
			}
			w.want(t, "while it is evaluated", "")
			w.Set(func() { w.slow = nil })
			close(slow)
			synctest.Wait()
		}
		with, without := []*plan{other, fails("load", 1)}, []*plan{other}
		during(with, without)
		w.want(t, "after the deletion during an evaluation", "web1/load 0, web1/load 1; deleted web1/load")
		during(with, without, with)
		w.want(t, "when it was back before the end of the evaluation", "web1/load 1")
		w.Define(without...)
		w.Took()
		during(with, []*plan{other, fails("load", 0)})
		w.want(t, "after the change during an evaluation", "web1/load 0, web1/load 1")
		ev, err := w.Event(state.Key{Namespace: "default", Entity: "web1", Check: "load"})
		if err != nil || ev.Check.Status != 0 {
			t.Errorf("after the change during an evaluation the event is %+v, %v", ev, err)
		}
		testcomputed.Pass(2 * time.Minute)
		w.Took()
		w.Define()
		w.want(t, "after all", "web1/other 0; deleted web1/load, web1/other")
	})
}

// TestTakesOver has a second member act after the first. A definition was deleted in between, and a client has sent an
// event with the label alone.
func TestTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		kept := fails("kept", 1)
		w.Define(fails("load", 1), fails("ok", 0), kept)
		testcomputed.Start(t, w.runner)()
		stranger := state.Key{Namespace: "default", Entity: "web9", Check: "x"}
		ev := *w.Events[state.Key{Namespace: "default", Entity: "web1", Check: "load"}]
		ev.Metadata.Annotations = nil
		w.Set(func() { w.Defs, w.Events[stranger], w.away = []*plan{kept}, &ev, true })
		w.Took()
		w.member(t)
		testcomputed.Start(t, w.runner)
		testcomputed.Pass(2 * time.Minute)
		w.want(t, "while another member acts", "")
		w.Set(func() { w.away = false; kept.statuses["web1"] = 0 })
		testcomputed.Pass(10 * time.Second)
		w.want(t, "when it acts", "web1/kept 0")
		testcomputed.Pass(sweepInterval - 3*time.Minute)
		if got := w.Took(); strings.Contains(got, "deleted") {
			t.Errorf("before the next sweep came %q", got)
		}
		testcomputed.Pass(time.Minute)
		got := w.Took()
		if !strings.Contains(got, "web1/load 0") || !strings.HasSuffix(got, "; deleted web1/load, web1/ok") {
			t.Errorf("within ten minutes came %q", got)
		}
		if _, err := w.Event(stranger); err != nil {
			t.Errorf("an event with the label alone: %v", err)
		}
	})
}

// TestAfterARestart finds the events of deleted definitions at once if this member acts.
func TestAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Define(fails("load", 1), fails("gone", 0))
		testcomputed.Start(t, w.runner)()
		w.Took()
		w.Set(func() { w.Defs = w.Defs[:1] })
		w.member(t)
		testcomputed.Start(t, w.runner)
		w.want(t, "after the restart", "web1/load 1; deleted web1/gone")
	})
}

// TestBounds has more evaluations due than run at a time, and stops while some run.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.slow = make(chan struct{})
		var defs []*plan
		for i := range 9 {
			defs = append(defs, fails(fmt.Sprint("load", i), 1))
		}
		w.Define(defs...)
		stop := testcomputed.Start(t, w.runner)
		counts := func(begun int) {
			t.Helper()
			w.Lock()
			defer w.Unlock()
			if w.atOnce != 4 || w.begun != begun {
				t.Errorf("%d evaluations, %d at a time; want %d, 4", w.begun, w.atOnce, begun)
			}
		}
		counts(4)
		close(w.slow)
		synctest.Wait()
		counts(9)
		w.Set(func() { w.slow = make(chan struct{}) })
		w.Took()
		testcomputed.Pass(10 * time.Second)
		stop()
		w.want(t, "of cancelled evaluations", "")
		if got := testutil.ToFloat64(w.runner.opts.Evaluations.WithLabelValues("failed")); got != 0 {
			t.Errorf("%v cancelled evaluations are failures", got)
		}
	})
}

// TestFailures has evaluations that fail and take too long, and a log that takes nothing.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Define(fails("cpu", 1), &plan{name: "disk", interval: 86400})
		testcomputed.Start(t, w.runner)
		w.Took()
		check := func(what string, ok, failed, logged int, status string) {
			t.Helper()
			gotOK := testutil.ToFloat64(w.runner.opts.Evaluations.WithLabelValues("ok"))
			gotFailed := testutil.ToFloat64(w.runner.opts.Evaluations.WithLabelValues("failed"))
			if gotOK != float64(ok) || gotFailed != float64(failed) {
				t.Errorf("%s: %v were ok and %v failed, want %d and %d", what, gotOK, gotFailed, ok, failed)
			}
			if n := strings.Count(w.log.String(), "the evaluation has no result"); n != logged {
				t.Errorf("%s: %d lines, want %d: %s", what, n, logged, w.log.String())
			}
			var got string
			if w.Set(func() { got = w.status }); got != status {
				t.Errorf("%s: the report is %q, want %q", what, got, status)
			}
		}
		check("at the start", 2, 0, 0, "cpu <nil>, disk <nil>")
		w.Set(func() { w.failure = errors.New("no values") })
		testcomputed.Pass(30 * time.Second)
		w.want(t, "after failures", "web1/cpu 3")
		if got := w.Output("web1", "cpu"); got != "no values" {
			t.Errorf("the output is %q", got)
		}
		check("after failures", 2, 3, 1, "cpu no values, disk <nil>")
		w.Set(func() { w.failure, w.slow = nil, make(chan struct{}) })
		testcomputed.Pass(45 * time.Second) // more than the interval and the timeout
		w.Set(func() { w.slow, w.Broken = nil, errors.New("the log takes nothing") })
		check("after one that took too long", 2, 4, 1, "cpu context deadline exceeded, disk <nil>")
		testcomputed.Pass(10 * time.Second)
		check("while the log takes nothing", 2, 5, 1, "cpu the log takes nothing, disk <nil>")
		w.Define(fails("cpu", 1))
		if !strings.Contains(w.log.String(), "cannot look for events of deleted definitions") {
			t.Errorf("the log is %s", w.log.String())
		}
		w.want(t, "while the log takes nothing", "")
		w.Set(func() { w.Broken = nil })
		testcomputed.Pass(10 * time.Second)
		w.want(t, "at the end", "web1/cpu 1")
		check("at the end", 3, 6, 2, "cpu <nil>")
	})
}

// TestSweepFails has a log that takes no deletion. The next sweep removes what is left.
func TestSweepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Define(fails("cpu", 0))
		w.runner.opts.Intake = &undeletable{world: w, n: 1}
		testcomputed.Start(t, w.runner)
		w.Took()
		w.Define()
		w.want(t, "while the log takes no deletion", "")
		if !strings.Contains(w.log.String(), "cannot remove an event of a deleted definition") {
			t.Errorf("the log is %s", w.log.String())
		}
		testcomputed.Pass(sweepInterval)
		w.want(t, "after the next sweep", "; deleted web1/cpu")
	})
}

// undeletable is a world that fails to delete events n times.
type undeletable struct {
	*world
	n int
}

func (u *undeletable) DeleteEvent(ctx context.Context, namespace, entity, check string) error {
	if u.n--; u.n >= 0 {
		return errors.New("the log takes nothing")
	}
	return u.world.DeleteEvent(ctx, namespace, entity, check)
}

func TestStartStop(t *testing.T) {
	w := newWorld(t)
	if err := w.runner.Stop(); err != nil {
		t.Error(err)
	}
	if err := w.runner.Start(t.Context()); err == nil {
		t.Error("a stopped runner starts")
	}
	w.member(t)
	if err := w.runner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.runner.Start(t.Context()); err == nil {
		t.Error("it starts twice")
	}
	for range 2 {
		if err := w.runner.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestNew(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*Options){
		"no Definitions": func(o *Options) { o.Definitions = nil },
		"no OnChange":    func(o *Options) { o.OnChange = nil },
		"no Source":      func(o *Options) { o.Source = nil },
		"no Intake":      func(o *Options) { o.Intake = nil },
		"no Acts":        func(o *Options) { o.Acts = nil },
		"no Logger":      func(o *Options) { o.Logger = nil },
		"no Evaluations": func(o *Options) { o.Evaluations = nil },
		"no Seconds":     func(o *Options) { o.Seconds = nil },
		"no Concurrent":  func(o *Options) { o.Concurrent = 0 },
		"no Timeout":     func(o *Options) { o.Timeout = 0 },
		"a bad Label":    func(o *Options) { o.Label = "((" },
	} {
		o := w.options()
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
	o := w.options()
	o.Report = nil
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.report(nil) // it is optional
}

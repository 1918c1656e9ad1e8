package alert

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcomputed"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// world is a runner's source, Intake and Query. Its series are in memory.
type world struct {
	*testcomputed.World[*resource.MetricCheck]

	// The lock of World guards the fields below.
	series  map[string]float64 // the value from now on; NaN for none
	queries int
	slow    chan struct{} // if not nil, queries wait until it is closed
	broken  error         // of queries
}

func newWorld() *world {
	return &world{World: testcomputed.New[*resource.MetricCheck](), series: map[string]float64{}}
}

func (w *world) definitions() []*resource.MetricCheck { return w.Definitions() }

func (w *world) onChange(f func()) (cancel func()) { return w.OnChange(f) }

// query returns all series with one value for the whole time.
func (w *world) query(ctx context.Context, def *resource.MetricCheck, from, until int64) ([]Series, error) {
	w.Lock()
	w.queries++
	slow := w.slow
	w.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
		}
	}
	w.Lock()
	defer w.Unlock()
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

func runner(t *testing.T, w *world, acts func(namespace, name string) bool) *Runner {
	t.Helper()
	r, err := newRunner(Options{Intake: w, Query: w.query, Acts: acts, MaxResults: 5}, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
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
		w.Define(load("load", func(d *resource.MetricCheck) { d.AbsentFor = 60 }))
		testcomputed.Start(t, runner(t, w, nil))
		if got := w.Took(); got != "web1/load 0, web2/load 1" {
			t.Errorf("at the start came %q", got)
		}
		testcomputed.Pass(9 * time.Second)
		if got := w.Took(); got != "" {
			t.Errorf("before the interval came %q", got)
		}
		w.Set(func() { w.series["web2.load"] = 12; delete(w.series, "web1.load") })
		testcomputed.Pass(time.Second)
		if got := w.Took(); got != "web1/load 3, web2/load 2" {
			t.Errorf("after the interval came %q", got)
		}
		testcomputed.Pass(60 * time.Second)
		w.Took()
		testcomputed.Pass(10 * time.Second)
		if got := w.Took(); got != "web1/load 0, web2/load 2; deleted web1/load" {
			t.Errorf("when web1 was absent for too long came %q", got)
		}
		w.Set(func() { w.series["web2.load"] = 1 })
		testcomputed.Pass(10 * time.Second)
		if got := w.Took(); got != "web2/load 0" {
			t.Errorf("at the end came %q", got)
		}
	})
}

// TestRunnerFails breaks the queries: results become unknown once, and come back.
func TestRunnerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"] = 7
		w.Define(load("load", nil))
		testcomputed.Start(t, runner(t, w, nil))
		w.Took()
		w.Set(func() { w.broken = errors.New("its author may see no metrics") })
		testcomputed.Pass(30 * time.Second)
		if got := w.Took(); got != "web1/load 3" || !strings.Contains(w.Output("web1", "load"), "may see no metrics") {
			t.Errorf("came %q, %q", got, w.Output("web1", "load"))
		}
		w.Set(func() { w.broken, w.slow = nil, make(chan struct{}) }) // now they take too long
		testcomputed.Pass(20 * time.Second)
		if got := w.Took(); got != "" {
			t.Errorf("while queries take too long came %q", got)
		}
		w.Set(func() { w.slow = nil })
		testcomputed.Pass(20 * time.Second)
		if got := w.Took(); !strings.HasPrefix(got, "web1/load 1") {
			t.Errorf("at the end came %q", got)
		}
		w.Set(func() {
			for i := range 6 {
				w.series[fmt.Sprintf("db%d.load", i)] = 1
			}
		})
		testcomputed.Pass(10 * time.Second)
		if out := w.Output("web1", "load"); !strings.Contains(out, "7 entities, more than 5") {
			t.Errorf("with too many entities the output is %q", out)
		}
	})
}

// TestRunnerOtherCheck has a definition name another check: the earlier results are retired.
func TestRunnerOtherCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"] = 7
		w.Define(load("load", nil))
		testcomputed.Start(t, runner(t, w, nil))
		if got := w.Took(); got != "web1/load 1" {
			t.Errorf("after the definition came %q", got)
		}
		w.Define(load("load", func(d *resource.MetricCheck) { d.Result.Check = "cpu" }))
		if got := w.Took(); got != "web1/cpu 1, web1/load 0; deleted web1/load" {
			t.Errorf("after the change came %q", got)
		}
		w.Define()
		if got := w.Took(); got != "web1/cpu 0; deleted web1/cpu" {
			t.Errorf("after the deletion came %q", got)
		}
	})
}

// TestRunnerBounds has more checks due than run at a time, on a member that acts for all but one.
func TestRunnerBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.series["web1.load"], w.slow = 7, make(chan struct{})
		var defs []*resource.MetricCheck
		for i := range 9 {
			defs = append(defs, load(fmt.Sprint("load", i), nil))
		}
		w.Define(defs...)
		testcomputed.Start(t, runner(t, w, func(_, name string) bool { return name != "load8" }))
		if w.queries != evaluating {
			t.Errorf("%d queries at a time", w.queries)
		}
		close(w.slow)
		synctest.Wait()
		if w.queries != 8 {
			t.Errorf("%d queries", w.queries)
		}
	})
}

func TestRunnerPreview(t *testing.T) {
	w := newWorld()
	w.series["web1.load"] = 7
	r := runner(t, w, nil)
	p, err := r.Preview(t.Context(), load("load", nil), 1000, 2000)
	if err != nil || p.Fired != 0 || len(p.Findings) != 1 || p.Findings[0].Status != 1 || w.Took() != "" {
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
	if p, err = r.Preview(t.Context(), one, 1000, 2000); err != nil || p.Fired != 1 || p.Findings[0].Entity != "load" ||
		p.Findings[0].Status != 3 {
		t.Errorf("without values: %+v, %v", p, err)
	}
}

func TestNew(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("it needs nothing")
	}
	for name, o := range map[string]Options{"MaxResults": {MaxResults: -1}, "Timeout": {Timeout: -1}} {
		if _, err := newRunner(o, newWorld()); err == nil {
			t.Errorf("a negative %s is no error", name)
		}
	}
}

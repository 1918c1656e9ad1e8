package aggregate

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// world holds definitions and events in memory: a runner's State and Intake.
type world struct {
	mu        sync.Mutex
	defs      []*resource.Aggregate
	entities  map[string]*resource.EntityConfig
	events    map[state.Key]*resource.Event
	changed   func()
	submitted []string // entity/check status
	deleted   []string
	reads     int
	broken    error // the error of Submit and find
}

func newWorld() *world {
	return &world{entities: map[string]*resource.EntityConfig{}, events: map[state.Key]*resource.Event{}}
}

func (w *world) definitions() []*resource.Aggregate {
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

func (w *world) define(defs ...*resource.Aggregate) {
	w.mu.Lock()
	w.defs = defs
	f := w.changed
	w.mu.Unlock()
	if f != nil {
		f()
	}
}

func (w *world) entity(_, name string) (*resource.EntityConfig, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entities[name]
	return e, ok
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
	return out, w.broken
}

func (w *world) Event(k state.Key) (*resource.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	ev, ok := w.events[k]
	if !ok {
		return nil, state.ErrNotFound
	}
	return ev, nil
}

func (w *world) Submit(_ context.Context, ev *resource.Event) error {
	if err := ev.Validate(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	w.events[keyOf(ev)] = ev
	w.submitted = append(w.submitted, fmt.Sprintf("%s/%s %d", ev.Entity.Metadata.Name, ev.Check.Metadata.Name, ev.Check.Status))
	return nil
}

func (w *world) DeleteEvent(_ context.Context, namespace, entity, check string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.events, state.Key{Namespace: namespace, Entity: entity, Check: check})
	w.deleted = append(w.deleted, entity+"/"+check)
	return nil
}

func keyOf(ev *resource.Event) state.Key {
	return state.Key{Namespace: ev.Entity.Metadata.Namespace, Entity: ev.Entity.Metadata.Name, Check: ev.Check.Metadata.Name}
}

// took returns what was submitted since the last call, sorted.
func (w *world) took() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.submitted)
	out := strings.Join(w.submitted, ", ")
	w.submitted = nil
	return out
}

// set stores an event of a check of an entity in a rack.
func (w *world) set(entity, check, rack string, status uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	meta := resource.ObjectMeta{Namespace: "default", Name: entity, Labels: map[string]string{"rack": rack}}
	if rack == "" {
		meta.Labels = nil
	}
	w.entities[entity] = &resource.EntityConfig{Metadata: meta}
	ev := &resource.Event{
		Entity: &resource.Entity{EntityClass: "agent", Metadata: meta},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: check, Labels: map[string]string{"tier": rack}}, Interval: 1, Status: status},
	}
	w.events[keyOf(ev)] = ev
}

func runner(t *testing.T, w *world) *Runner {
	t.Helper()
	r, err := newRunner(Options{Intake: w, MaxGroups: 10}, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func disks(name string, change func(*resource.Aggregate)) *resource.Aggregate {
	a := &resource.Aggregate{
		Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, FieldSelector: "event.check.name == disk",
		Warning: &resource.AggregateThreshold{Percent: 25}, Critical: &resource.AggregateThreshold{Count: 3}, Interval: 10,
	}
	if change != nil {
		change(a)
	}
	return a
}

func TestEvaluate(t *testing.T) {
	w := newWorld()
	for i, status := range []uint32{0, 0, 1, 2, 0, 0} {
		w.set(fmt.Sprint("web", i), "disk", []string{"r1", "r 2"}[i%2], status)
	}
	w.set("web0", "cpu", "r1", 2)
	w.set("lone", "disk", "", 2)
	silenced := w.events[state.Key{Namespace: "default", Entity: "web3", Check: "disk"}]
	silenced.Check.IsSilenced, silenced.Check.Silenced = true, []string{"x"}
	few := uint32(0)
	for _, tc := range []struct {
		name   string
		change func(*resource.Aggregate)
		want   string // entity/check status, first line of the output
	}{
		{"all", nil, "disks/aggregate 2: 3 of 7 failing (42.9%), critical from 3"},
		{"silenced ones left out", func(a *resource.Aggregate) { a.IgnoreSilenced = true }, "disks/aggregate 1: 2 of 6 failing (33.3%), warning from 25%"},
		{"only critical ones count", func(a *resource.Aggregate) { a.Failing = "event.check.status == 2" }, "disks/aggregate 1: 2 of 7 failing (28.6%), warning from 25%"},
		{"below the thresholds", func(a *resource.Aggregate) {
			a.Warning.Percent, a.Critical = 60, &resource.AggregateThreshold{Percent: 90, Count: 4}
		}, "disks/aggregate 0: 3 of 7 failing (42.9%)"},
		{"too few", func(a *resource.Aggregate) { a.MinMembers = 8 }, "disks/aggregate 3: 3 of 7 failing (42.9%), fewer than 8 members"},
		{"too few is fine", func(a *resource.Aggregate) { a.MinMembers, a.FewStatus = 8, &few }, "disks/aggregate 0: 3 of 7 failing (42.9%), fewer than 8 members"},
		{"none", func(a *resource.Aggregate) { a.FieldSelector = "event.check.name == nothing" }, "disks/aggregate 0: 0 of 0 failing (0.0%)"},
		{"by rack, without those that have none", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" },
			"disks-r_2/aggregate 1: r 2: 1 of 3 failing (33.3%), warning from 25%; disks-r1/aggregate 1: r1: 1 of 3 failing (33.3%), warning from 25%"},
		{"by a label of the check", func(a *resource.Aggregate) { a.GroupBy = "event.check.labels.tier" },
			"disks-r_2/aggregate 1: r 2: 1 of 3 failing (33.3%), warning from 25%; disks-r1/aggregate 1: r1: 1 of 3 failing (33.3%), warning from 25%"},
		{"by check, with names of its own", func(a *resource.Aggregate) {
			a.LabelSelector, a.FieldSelector, a.GroupBy, a.Result.Entity, a.Result.Check = "rack == r1", "", "check.name", "shop", "health"
		}, "shop-cpu/health 1: cpu: 1 of 1 failing (100.0%), warning from 25%; shop-disk/health 1: disk: 1 of 3 failing (33.3%), warning from 25%"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			def := disks("disks", tc.change)
			if err := def.Validate(); err != nil {
				t.Fatal(err)
			}
			results, err := runner(t, w).Evaluate(t.Context(), def, nil)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, r := range results {
				first, _, _ := strings.Cut(r.Output, "\n")
				lines = append(lines, fmt.Sprintf("%s/%s %d: %s", r.Entity, r.Check, r.Status, first))
			}
			if got := strings.Join(lines, "; "); got != tc.want {
				t.Errorf("got\n%s, want\n%s", got, tc.want)
			}
		})
	}
}

func TestOutputNamesSomeMembers(t *testing.T) {
	w := newWorld()
	for i := range 30 {
		w.set(fmt.Sprintf("web%02d", i), "disk", "r1", 2)
	}
	results, err := runner(t, w).Evaluate(t.Context(), disks("disks", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(results[0].Output), "\n")
	if len(lines) != 22 || lines[1] != "web00/disk" || lines[21] != "and 10 more" {
		t.Errorf("output is %q", lines)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	w := newWorld()
	for i := range 11 {
		w.set(fmt.Sprint("web", i), "disk", fmt.Sprint("r", i), 0)
	}
	def := disks("disks", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" })
	if results, err := runner(t, w).Evaluate(t.Context(), def, nil); err == nil {
		t.Errorf("%d groups, want an error", len(results))
	}
	w.set("web0", "disk", "a/b", 0)
	w.set("web1", "disk", "a b", 0)
	if results, err := runner(t, w).Evaluate(t.Context(), def, nil); err == nil || len(results) > 0 {
		t.Errorf("%v, %v", results, err)
	}
	delete(w.events, state.Key{Namespace: "default", Entity: "web9", Check: "disk"})
	results, err := runner(t, w).Evaluate(t.Context(), def, nil)
	if err != nil || len(results) != 10 || results[0].Entity != "disks-a_b" || results[1].Entity != "disks-a_b.2" {
		t.Errorf("%+v, %v", results, err)
	}
}

func TestParse(t *testing.T) {
	for name, change := range map[string]func(*resource.Aggregate){
		"selector": func(a *resource.Aggregate) { a.LabelSelector = "a ==" },
		"failing":  func(a *resource.Aggregate) { a.Failing = "((" },
		"group_by": func(a *resource.Aggregate) { a.GroupBy = "entity.nothing" },
	} {
		if err := Parse(disks("disks", change)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, field := range []string{"entity.labels.rack", "event.labels.x", "check.name", "event.check.labels.a/b", "entity.system.os", "is_silenced"} {
		if err := Parse(disks("disks", func(a *resource.Aggregate) { a.GroupBy = field })); err != nil {
			t.Errorf("group_by %s: %v", field, err)
		}
	}
}

// TestInterval runs two aggregates for half a minute.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("web1", "disk", "r1", 0)
		w.define(disks("slow", nil), disks("fast", func(a *resource.Aggregate) { a.Interval = 4 }))
		r := runner(t, w)
		start(t, r)
		if got := w.took(); got != "fast/aggregate 0, slow/aggregate 0" {
			t.Errorf("at the start came %q", got)
		}
		w.set("web1", "disk", "r1", 2)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := w.took(); got != "" {
			t.Errorf("between the intervals came %q", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.took(); got != "fast/aggregate 1" {
			t.Errorf("after 4 s came %q", got)
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if got := w.took(); got != "fast/aggregate 1, fast/aggregate 1, fast/aggregate 1, fast/aggregate 1, slow/aggregate 1, slow/aggregate 1" {
			t.Errorf("in the next 16 s came %q", got)
		}
	})
}

func start(t *testing.T, r *Runner) {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	synctest.Wait()
}

// TestChanges defines, changes and deletes an aggregate while it runs. Others are not evaluated early.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("web1", "disk", "r1", 2)
		other := disks("other", func(a *resource.Aggregate) { a.Interval = 86400 })
		w.define(other)
		start(t, runner(t, w))
		w.took()
		w.define(other, disks("disks", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" }))
		synctest.Wait()
		if got := w.took(); got != "disks-r1/aggregate 1" {
			t.Errorf("after its definition came %q", got)
		}
		w.define(other, disks("disks", func(a *resource.Aggregate) { a.Result.Entity = "shop" }))
		synctest.Wait()
		if got := w.took(); got != "disks-r1/aggregate 0, shop/aggregate 1" || !slices.Equal(w.deleted, []string{"disks-r1/aggregate"}) {
			t.Errorf("after the change came %q, deleted is %q", got, w.deleted)
		}
		w.define(other)
		synctest.Wait()
		if got := w.took(); got != "shop/aggregate 0" || !slices.Contains(w.deleted, "shop/aggregate") {
			t.Errorf("after the deletion came %q, deleted is %q", got, w.deleted)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.took(); got != "" {
			t.Errorf("a minute later came %q", got)
		}
	})
}

// TestAfterARestart finds results of earlier runs: of a group without members, of a deleted aggregate, and an unrelated
// event that only has the label.
func TestAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("web1", "disk", "r1", 0)
		grouped := disks("disks", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" })
		r := runner(t, w)
		add := func(def *resource.Aggregate, entity string, status uint32) *resource.Event {
			res := &resource.AggregateEvaluation{AggregateCount: resource.AggregateCount{Group: "r9"}, Entity: entity, Check: "aggregate", Status: status}
			ev := r.resultEvent(def, res)
			w.events[keyOf(ev)] = ev
			return ev
		}
		add(grouped, "disks-r9", 2)
		add(disks("gone", nil), "gone", 0)
		add(disks("stranger", nil), "stranger", 2).Metadata.Annotations = nil
		w.define(grouped)
		start(t, r)
		if got := w.took(); got != "disks-r1/aggregate 0, disks-r9/aggregate 0" {
			t.Errorf("came %q", got)
		}
		slices.Sort(w.deleted)
		if !slices.Equal(w.deleted, []string{"disks-r9/aggregate", "gone/aggregate"}) {
			t.Errorf("deleted %q", w.deleted)
		}
	})
}

// TestOwnResultsAreNotMembers has an aggregate that would select itself, and one over the results of others.
func TestOwnResultsAreNotMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("web1", "disk", "r1", 2)
		everything := disks("everything", func(a *resource.Aggregate) { a.FieldSelector = "event.entity.name != nobody" })
		part := disks("part", func(a *resource.Aggregate) { a.Result.Labels = map[string]string{"service": "shop"} })
		service := disks("shop", func(a *resource.Aggregate) {
			a.FieldSelector, a.LabelSelector, a.Warning.Percent = "", "service == shop", 1
		})
		w.define(everything, part, service)
		start(t, runner(t, w))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		counts := map[string]string{}
		for k, ev := range w.events {
			if k.Check == "aggregate" {
				first, _, _ := strings.Cut(ev.Check.Output, ",")
				counts[k.Entity] = first
			}
		}
		want := map[string]string{"everything": "3 of 3 failing (100.0%)", "part": "1 of 1 failing (100.0%)", "shop": "1 of 1 failing (100.0%)"}
		if !maps.Equal(counts, want) {
			t.Errorf("got %v", counts)
		}
	})
}

func TestFailuresPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.set("web1", "disk", "r1", 0)
		w.define(disks("disks", nil))
		w.broken = errors.New("the log takes nothing")
		start(t, runner(t, w))
		time.Sleep(25 * time.Second)
		synctest.Wait()
		w.mu.Lock()
		w.broken = nil
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := w.took(); got != "disks/aggregate 0" {
			t.Errorf("came %q", got)
		}
	})
}

func TestStartStop(t *testing.T) {
	r := runner(t, newWorld())
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

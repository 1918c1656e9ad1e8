package aggregate

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcomputed"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// world is a runner's source and Intake.
type world struct {
	*testcomputed.World[*resource.Aggregate]
	entities map[string]*resource.EntityConfig // guarded by the lock of World
}

func newWorld() *world {
	return &world{World: testcomputed.New[*resource.Aggregate](), entities: map[string]*resource.EntityConfig{}}
}

func (w *world) definitions() []*resource.Aggregate { return w.Definitions() }

func (w *world) onChange(f func()) (cancel func()) { return w.OnChange(f) }

func (w *world) entity(_, name string) (*resource.EntityConfig, bool) {
	w.Lock()
	defer w.Unlock()
	e, ok := w.entities[name]
	return e, ok
}

// put stores an event of a check of an entity in a rack.
func (w *world) put(entity, check, rack string, status uint32) {
	w.Lock()
	defer w.Unlock()
	meta := resource.ObjectMeta{Namespace: "default", Name: entity, Labels: map[string]string{"rack": rack}}
	if rack == "" {
		meta.Labels = nil
	}
	w.entities[entity] = &resource.EntityConfig{Metadata: meta}
	ev := &resource.Event{
		Entity: &resource.Entity{EntityClass: "agent", Metadata: meta},
		Check: &resource.Check{Metadata: resource.ObjectMeta{Namespace: "default", Name: check,
			Labels: map[string]string{"tier": rack}}, Interval: 1, Status: status},
	}
	w.Events[testcomputed.Key(ev)] = ev
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
		w.put(fmt.Sprint("web", i), "disk", []string{"r1", "r 2"}[i%2], status)
	}
	w.put("web0", "cpu", "r1", 2)
	w.put("lone", "disk", "", 2)
	silenced := w.Events[state.Key{Namespace: "default", Entity: "web3", Check: "disk"}]
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
			a.LabelSelector, a.FieldSelector, a.GroupBy, a.Result.Entity, a.Result.Check = "rack == r1", "", "check.name",
				"shop", "health"
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
		w.put(fmt.Sprintf("web%02d", i), "disk", "r1", 2)
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
		w.put(fmt.Sprint("web", i), "disk", fmt.Sprint("r", i), 0)
	}
	def := disks("disks", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" })
	if results, err := runner(t, w).Evaluate(t.Context(), def, nil); err == nil {
		t.Errorf("%d groups, want an error", len(results))
	}
	w.put("web0", "disk", "a/b", 0)
	w.put("web1", "disk", "a b", 0)
	if results, err := runner(t, w).Evaluate(t.Context(), def, nil); err == nil || len(results) > 0 {
		t.Errorf("%v, %v", results, err)
	}
	delete(w.Events, state.Key{Namespace: "default", Entity: "web9", Check: "disk"})
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
	for _, field := range []string{"entity.labels.rack", "event.labels.x", "check.name", "event.check.labels.a/b",
		"entity.system.os", "is_silenced"} {
		if err := Parse(disks("disks", func(a *resource.Aggregate) { a.GroupBy = field })); err != nil {
			t.Errorf("group_by %s: %v", field, err)
		}
	}
}

// TestOtherEntity has a definition name another entity, and lose its groups: the earlier results are retired.
func TestOtherEntity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put("web1", "disk", "r1", 2)
		w.Define(disks("disks", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" }))
		testcomputed.Start(t, runner(t, w))
		if got := w.Took(); got != "disks-r1/aggregate 1" {
			t.Errorf("after its definition came %q", got)
		}
		w.Define(disks("disks", func(a *resource.Aggregate) { a.Result.Entity = "shop" }))
		if got := w.Took(); got != "disks-r1/aggregate 0, shop/aggregate 1; deleted disks-r1/aggregate" {
			t.Errorf("after the change came %q", got)
		}
		w.Define()
		if got := w.Took(); got != "shop/aggregate 0; deleted shop/aggregate" {
			t.Errorf("after the deletion came %q", got)
		}
	})
}

// TestAfterARestart finds results of earlier runs: of a group without members, of a deleted aggregate, and an unrelated
// event that only has the label.
func TestAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put("web1", "disk", "r1", 0)
		grouped := disks("disks", func(a *resource.Aggregate) { a.GroupBy = "entity.labels.rack" })
		r := runner(t, w)
		add := func(def *resource.Aggregate, entity string, status uint32) *resource.Event {
			res := &resource.AggregateEvaluation{AggregateCount: resource.AggregateCount{Group: "r9"}, Entity: entity,
				Check: "aggregate", Status: status}
			ev := r.resultEvent(def, res)
			w.Events[testcomputed.Key(ev)] = ev
			return ev
		}
		add(grouped, "disks-r9", 2)
		add(disks("gone", nil), "gone", 0)
		add(disks("stranger", nil), "stranger", 2).Metadata.Annotations = nil
		w.Define(grouped)
		testcomputed.Start(t, r)
		want := "disks-r1/aggregate 0, disks-r9/aggregate 0; deleted disks-r9/aggregate, gone/aggregate"
		if got := w.Took(); got != want {
			t.Errorf("came %q, want %q", got, want)
		}
	})
}

// TestOwnResultsAreNotMembers has an aggregate that would select itself, and one over the results of others.
func TestOwnResultsAreNotMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put("web1", "disk", "r1", 2)
		everything := disks("everything", func(a *resource.Aggregate) { a.FieldSelector = "event.entity.name != nobody" })
		part := disks("part", func(a *resource.Aggregate) { a.Result.Labels = map[string]string{"service": "shop"} })
		service := disks("shop", func(a *resource.Aggregate) {
			a.FieldSelector, a.LabelSelector, a.Warning.Percent = "", "service == shop", 1
		})
		w.Define(everything, part, service)
		testcomputed.Start(t, runner(t, w))
		testcomputed.Pass(10 * time.Second)
		counts := map[string]string{}
		for k, ev := range w.Events {
			if k.Check == "aggregate" {
				first, _, _ := strings.Cut(ev.Check.Output, ",")
				counts[k.Entity] = first
			}
		}
		want := map[string]string{"everything": "3 of 3 failing (100.0%)", "part": "1 of 1 failing (100.0%)",
			"shop": "1 of 1 failing (100.0%)"}
		if !maps.Equal(counts, want) {
			t.Errorf("got %v", counts)
		}
	})
}

func TestNew(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("it needs nothing")
	}
	for name, o := range map[string]Options{"MaxGroups": {MaxGroups: -1}, "Timeout": {Timeout: -1}} {
		if _, err := newRunner(o, newWorld()); err == nil {
			t.Errorf("a negative %s is no error", name)
		}
	}
}

package aggregate

import (
	"errors"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testcomputed"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

// TestLimit has an aggregate whose author may list the events of one team only, then none.
func TestLimit(t *testing.T) {
	w := newWorld()
	r := runner(t, w)
	team := func(entity, name string, status uint32) {
		ev := r.resultEvent(disks("x", nil), &resource.AggregateEvaluation{Entity: entity, Check: "disk", Status: status})
		ev.Check.Metadata.Labels, ev.Metadata.Annotations = map[string]string{"team": name}, nil
		w.Events[testcomputed.Key(ev)] = ev
	}
	team("r1", "red", 0)
	team("b1", "blue", 2)
	var denied error
	r.opts.Limit = func(*resource.Aggregate) (*selector.Selector, error) {
		s, err := selector.Parse("team == red", "")
		return s, errors.Join(err, denied)
	}
	def := disks("disks", func(a *resource.Aggregate) { a.FieldSelector = "event.check.name == disk" })
	q, err := newQuery(def)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.update(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	key := state.Key{Namespace: "default", Entity: def.EntityName(), Check: def.CheckName()}
	if ev := w.Events[key]; ev == nil || ev.Check.Status != 0 || strings.Contains(ev.Check.Output, "b1") ||
		!strings.HasPrefix(ev.Check.Output, "0 of 1") {
		t.Fatalf("the result is %+v", ev)
	}

	// A result must not replace another team's event.
	thief := disks("thief", func(a *resource.Aggregate) {
		a.FieldSelector, a.Result.Entity, a.Result.Check = "event.check.name == disk", "b1", "disk"
	})
	if q, err = newQuery(thief); err != nil {
		t.Fatal(err)
	}
	if err := r.update(t.Context(), q); err == nil || !strings.Contains(err.Error(), "not the author's") {
		t.Errorf("to write over b1/disk: %v", err)
	}
	if ev := w.Events[state.Key{Namespace: "default", Entity: "b1", Check: "disk"}]; ev.Check.Status != 2 {
		t.Errorf("b1/disk became %+v", ev.Check)
	}

	// When the author loses the right, the result becomes unknown.
	denied = errors.New("its author may not list events")
	if q, err = newQuery(def); err != nil {
		t.Fatal(err)
	}
	if err := r.update(t.Context(), q); !errors.Is(err, errForbidden) {
		t.Errorf("without the right: %v", err)
	}
	if ev := w.Events[key]; ev.Check.Status != 3 || !strings.Contains(ev.Check.Output, "may not list events") {
		t.Errorf("the result is %+v", ev.Check)
	}
	w.Took()
	err = r.update(t.Context(), q)
	if got := w.Took(); !errors.Is(err, errForbidden) || got != "" {
		t.Errorf("it is said again: %v, %v", err, got)
	}
	if _, err := r.Evaluate(t.Context(), def, nil); !errors.Is(err, errForbidden) {
		t.Errorf("an evaluation: %v", err)
	}
}

package computed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/internal/testcomputed"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
	"github.com/lapwing-monitoring/lapwing/state"
)

func TestNewEvent(t *testing.T) {
	r := newWorld(t).runner
	as := &resource.ComputedResult{
		Labels: map[string]string{"team": "shop", "rack": "none"}, Annotations: map[string]string{"runbook": "x"},
		Handlers:  []string{"slack"},
		Pipelines: []resource.ResourceReference{{APIVersion: "core/v2", Type: "Pipeline", Name: "p"}},
	}
	ev := r.NewEvent(resource.Name{Namespace: "ops", Name: "racks"}, 20, as, &Result{
		Entity: "rack1", Check: "racks", Status: 2, Output: "two fail", Labels: map[string]string{"rack": "rack1"},
		Figures: map[string]int{"failing": 2},
	})
	if err := ev.Validate(); err != nil {
		t.Error(err)
	}
	if k := testcomputed.Key(ev); k != (state.Key{Namespace: "ops", Entity: "rack1", Check: "racks"}) {
		t.Errorf("the key is %+v", k)
	}
	labels := map[string]string{"team": "shop", "rack": "rack1", "plan": "racks"}
	if !maps.Equal(ev.Check.Metadata.Labels, labels) || ev.Check.Metadata.Annotations["runbook"] != "x" {
		t.Errorf("the check is %+v", ev.Check.Metadata)
	}
	if c := ev.Check; c.Status != 2 || c.Output != "two fail" || c.Interval != 20 || len(c.Handlers) != 1 ||
		len(c.Pipelines) != 1 || len(ev.Pipelines) != 1 {
		t.Errorf("the check is %+v", c)
	}
	if got := ev.Metadata.Annotations["lapwing.io/plan"]; got != `{"failing":2}` {
		t.Errorf("the annotation is %s", got)
	}
	if ev.Entity.EntityClass != resource.EntityProxyClass || !r.Made(ev) || len(as.Labels) != 2 {
		t.Errorf("the event is %+v, the definition has the labels %v", ev, as.Labels)
	}
}

func TestFollow(t *testing.T) {
	last := newWorld(t).runner.NewEvent(resource.Name{Namespace: "default", Name: "cpu"}, 10, &resource.ComputedResult{},
		&Result{Entity: "web1", Check: "cpu", Status: 2})
	last.Check.History = []resource.CheckHistory{{Status: 2}}
	next := Follow(last, 0, "it is over")
	if bytes.Equal(next.ID, last.ID) || next.Check.Status != 0 || next.Check.Output != "it is over" ||
		next.Check.History != nil {
		t.Errorf("it is %+v, %+v", next, next.Check)
	}
	if last.Check.Status != 2 || len(last.Check.History) != 1 {
		t.Errorf("the last one became %+v", last.Check)
	}
}

// TestRetire retires events in each state, and with a log and a source that fail.
func TestRetire(t *testing.T) {
	w := newWorld(t)
	add := func(entity string, status uint32) state.Key {
		ev := w.runner.NewEvent(resource.Name{Namespace: "default", Name: "cpu"}, 10, &resource.ComputedResult{},
			&Result{Entity: entity, Check: "cpu", Status: status})
		w.Events[testcomputed.Key(ev)] = ev
		return testcomputed.Key(ev)
	}
	failing, ok, stranger := add("failing", 2), add("ok", 0), add("stranger", 2)
	w.Events[stranger].Metadata.Annotations = nil
	all := []state.Key{failing, ok, stranger, {Namespace: "default", Entity: "gone", Check: "cpu"}}

	w.Broken = errors.New("the log takes nothing")
	for k, want := range map[state.Key]string{failing: "resolve failing/cpu: ", ok: "remove ok/cpu: "} {
		err := w.runner.Retire(t.Context(), k, "it is over")
		if !errors.Is(err, w.Broken) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v", k, err)
		}
	}
	w.Broken = nil
	w.runner.opts.Source = unreadable{w}
	err := w.runner.Retire(t.Context(), ok, "it is over")
	if err == nil || !strings.HasPrefix(err.Error(), "read result ok/cpu: ") {
		t.Errorf("a source that fails: %v", err)
	}
	w.runner.opts.Source = w
	w.want(t, "with errors", "")

	if err := w.runner.RetireAll(t.Context(), all, "it is over"); err != nil {
		t.Error(err)
	}
	w.want(t, "at the end", "failing/cpu 0; deleted failing/cpu, ok/cpu")
}

// unreadable is a world whose events cannot be read.
type unreadable struct{ *world }

func (unreadable) Event(state.Key) (*resource.Event, error) { return nil, errors.New("no disk") }

// TestUnknown makes results unknown, once.
func TestUnknown(t *testing.T) {
	w := newWorld(t)
	var own []state.Key
	for i, status := range []uint32{0, 2, 3} {
		ev := w.runner.NewEvent(resource.Name{Namespace: "default", Name: "cpu"}, 10, &resource.ComputedResult{},
			&Result{Entity: fmt.Sprint("web", i), Check: "cpu", Status: status})
		w.Events[testcomputed.Key(ev)] = ev
		own = append(own, testcomputed.Key(ev))
	}
	own = append(own, state.Key{Namespace: "default", Entity: "gone", Check: "cpu"})
	for _, want := range []string{"web0/cpu 3, web1/cpu 3", ""} {
		if err := w.runner.Unknown(t.Context(), own, errors.New("no values")); err != nil {
			t.Error(err)
		}
		w.want(t, "of it", want)
	}
	if got := w.Output("web1", "cpu"); got != "no values" {
		t.Errorf("the output is %q", got)
	}
}

// TestSubmitReturnsTheFirstErrors submits more events than run at a time. The error must not grow with them.
func TestSubmitReturnsTheFirstErrors(t *testing.T) {
	w := newWorld(t)
	var events []*resource.Event
	for i := range 3 * submitting {
		events = append(events, w.runner.NewEvent(resource.Name{Namespace: "default", Name: "cpu"}, 10,
			&resource.ComputedResult{}, &Result{Entity: fmt.Sprint("web", i), Check: "cpu"}))
	}
	if err := w.runner.Submit(t.Context(), events); err != nil || len(w.Events) != len(events) {
		t.Errorf("%d events, %v", len(w.Events), err)
	}
	w.Broken = errors.New("no log")
	if err := w.runner.Submit(t.Context(), events); err == nil || err.Error() != "no log\nno log\nno log" {
		t.Errorf("the error is %q", err)
	}
}

func TestOwn(t *testing.T) {
	w := newWorld(t)
	var keys []state.Key
	for _, name := range []string{"cpu", "cpu2"} {
		ev := w.runner.NewEvent(resource.Name{Namespace: "default", Name: name}, 10, &resource.ComputedResult{},
			&Result{Entity: "web1", Check: name})
		w.Events[testcomputed.Key(ev)] = ev
		keys = append(keys, testcomputed.Key(ev))
	}
	own, err := w.runner.Own("cpu")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := w.Find(t.Context(), "default", own); err != nil || len(found) != 1 || found[0] != keys[0] {
		t.Errorf("found %v, %v", found, err)
	}
}

// reader is a state with one event.
type reader struct {
	ev    *resource.Event
	err   error
	query state.Query
}

func (r *reader) Select(_ context.Context, q state.Query) (*state.Page, error) {
	r.query = q
	return &state.Page{}, r.err
}

func (r *reader) Event(namespace, entity, check string) (*resource.Event, error) {
	if k := testcomputed.Key(r.ev); k != (state.Key{Namespace: namespace, Entity: entity, Check: check}) {
		return nil, state.ErrNotFound
	}
	return r.ev, nil
}

func TestState(t *testing.T) {
	ev := newWorld(t).runner.NewEvent(resource.Name{Namespace: "ops", Name: "cpu"}, 10, &resource.ComputedResult{},
		&Result{Entity: "web1", Check: "cpu"})
	from := &reader{ev: ev}
	s := State{from}
	all, err := selector.Parse(`plan =~ ""`, "")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.Find(t.Context(), "ops", all); err != nil || len(found) != 0 || from.query.Namespace != "ops" ||
		from.query.Selector != all || from.query.Limit != 0 {
		t.Errorf("found %v, %v with the query %+v", found, err, from.query)
	}
	from.err = errors.New("not yet")
	if _, err := s.Find(t.Context(), "ops", all); !errors.Is(err, from.err) {
		t.Errorf("the error is %v", err)
	}
	if got, err := s.Event(testcomputed.Key(ev)); err != nil || got != ev {
		t.Errorf("%v, %v", got, err)
	}
}

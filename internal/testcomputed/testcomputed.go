// Package testcomputed holds definitions and events in memory, for tests of package computed and of those that give it
// definitions. It replaces the snapshot of config, the state and the intake.
package testcomputed

import (
	"context"
	"errors"
	"fmt"
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

// World has definitions of type D. It is a computed.Source and a computed.Intake.
type World[D any] struct {
	sync.Mutex // guards the fields below

	Defs   []D
	Events map[state.Key]*resource.Event
	Broken error // if not nil, the error of Find, Submit and DeleteEvent

	changed            func()
	submitted, deleted []string
}

// New returns a World without definitions and events.
func New[D any]() *World[D] { return &World[D]{Events: map[state.Key]*resource.Event{}} }

// Key returns the key of an event.
func Key(ev *resource.Event) state.Key {
	return state.Key{
		Namespace: ev.Entity.Metadata.Namespace, Entity: ev.Entity.Metadata.Name, Check: ev.Check.Metadata.Name,
	}
}

// Set makes a change under the lock.
func (w *World[D]) Set(change func()) {
	w.Lock()
	defer w.Unlock()
	change()
}

// Definitions returns the definitions of the last call of Define.
func (w *World[D]) Definitions() []D {
	w.Lock()
	defer w.Unlock()
	return slices.Clone(w.Defs)
}

// OnChange has Define call f until cancel is called.
func (w *World[D]) OnChange(f func()) (cancel func()) {
	w.Set(func() { w.changed = f })
	return func() { w.Set(func() { w.changed = nil }) }
}

// Define replaces all definitions. Once a runner listens, the test must be in a synctest bubble: Define returns when
// the runner has followed.
func (w *World[D]) Define(defs ...D) {
	w.Lock()
	w.Defs = defs
	f := w.changed
	w.Unlock()
	if f != nil {
		f()
		synctest.Wait()
	}
}

// Find implements computed.Source.
func (w *World[D]) Find(_ context.Context, namespace string, sel *selector.Selector) ([]state.Key, error) {
	w.Lock()
	defer w.Unlock()
	var out []state.Key
	for k, ev := range w.Events {
		if (namespace == "" || k.Namespace == namespace) && sel.Match(selector.Event(ev)) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b state.Key) int {
		return strings.Compare(a.Entity+"/"+a.Check, b.Entity+"/"+b.Check)
	})
	return out, w.Broken
}

// Event implements computed.Source.
func (w *World[D]) Event(k state.Key) (*resource.Event, error) {
	w.Lock()
	defer w.Unlock()
	ev, ok := w.Events[k]
	if !ok {
		return nil, state.ErrNotFound
	}
	return ev, nil
}

// Submit implements computed.Intake. It refuses what the real one would.
func (w *World[D]) Submit(ctx context.Context, ev *resource.Event) error {
	w.Lock()
	defer w.Unlock()
	if err := errors.Join(ctx.Err(), ev.Validate(), w.Broken); err != nil {
		return err
	}
	k := Key(ev)
	w.Events[k] = ev
	w.submitted = append(w.submitted, fmt.Sprintf("%s/%s %d", k.Entity, k.Check, ev.Check.Status))
	return nil
}

// DeleteEvent implements computed.Intake.
func (w *World[D]) DeleteEvent(ctx context.Context, namespace, entity, check string) error {
	w.Lock()
	defer w.Unlock()
	if err := errors.Join(ctx.Err(), w.Broken); err != nil {
		return err
	}
	delete(w.Events, state.Key{Namespace: namespace, Entity: entity, Check: check})
	w.deleted = append(w.deleted, entity+"/"+check)
	return nil
}

// Took returns what was submitted and deleted since the last call, sorted: "a/cpu 0, b/cpu 2; deleted a/cpu".
func (w *World[D]) Took() string {
	w.Lock()
	defer w.Unlock()
	slices.Sort(w.submitted)
	slices.Sort(w.deleted)
	out := strings.Join(w.submitted, ", ")
	if len(w.deleted) > 0 {
		out += "; deleted " + strings.Join(w.deleted, ", ")
	}
	w.submitted, w.deleted = nil, nil
	return out
}

// Output returns the output of an event in the namespace default, or the error of reading it.
func (w *World[D]) Output(entity, check string) string {
	ev, err := w.Event(state.Key{Namespace: "default", Entity: entity, Check: check})
	if err != nil {
		return err.Error()
	}
	return ev.Check.Output
}

// Start starts a runner, and returns a function that stops it twice, as the end of the test does. The test must be in a
// synctest bubble.
func Start(t *testing.T, r interface {
	Start(ctx context.Context) error
	Stop() error
}) (stop func()) {
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

// Pass lets time pass in the synctest bubble of a test.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// TestViewer compares what a viewer says with the events.
func TestViewer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	b := newBench(t, 3)
	var f fleet
	b.state.opts.Entity = func(namespace, name string) (*resource.EntityConfig, bool) { return f.get(namespace, name) }
	f = newFleet(t, b, random)
	labels := []string{"region", "secret", "nothing"}
	check := func(t *testing.T) {
		for _, question := range questions {
			sel, err := selector.Parse(question[0], question[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, namespace := range []string{"", "a", "a-b", "nope"} {
				want := sought(t, b.state.State, Query{Namespace: namespace, Selector: sel})
				var all, of []string
				viewer := b.state.Viewer(namespace, sel, labels)
				for i := range viewer.Partitions() {
					err := viewer.All(t.Context(), i, func(g Glance) {
						all = append(all, name(g.Key))
						b.compare(g, labels)
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				slices.Sort(all)
				slices.Sort(want)
				if !slices.Equal(all, want) {
					t.Fatalf("%q in %q: all are %s, want %s", question, namespace, all, want)
				}
				page, err := b.state.Select(t.Context(), Query{})
				if err != nil {
					t.Fatal(err)
				}
				keys := append(slices.Collect(page.Keys()), Key{"a", "nope", "nope"})
				err = b.state.Viewer(namespace, sel, labels).Of(t.Context(), keys, func(g Glance, selected bool) {
					if selected {
						of = append(of, name(g.Key))
						b.compare(g, labels)
					}
				})
				slices.Sort(of)
				if err != nil || !slices.Equal(of, want) {
					t.Fatalf("%q in %q: one by one %s, %v, want %s", question, namespace, of, err, want)
				}
				of = nil
				viewer = b.state.Viewer(namespace, sel, labels)
				asked := map[[2]string]bool{}
				for _, k := range keys {
					if entity := [2]string{k.Namespace, k.Entity}; !asked[entity] {
						asked[entity] = true
						err = errors.Join(err, viewer.Entity(t.Context(), k.Namespace, k.Entity, func(g Glance) {
							of = append(of, name(g.Key))
							b.compare(g, labels)
						}))
					}
				}
				slices.Sort(of)
				if err != nil || !slices.Equal(of, want) {
					t.Fatalf("%q in %q: by entity %s, %v, want %s", question, namespace, of, err, want)
				}
			}
		}
	}
	t.Run("fresh", check)
	b.crash()
	b.open(func(o *Options) { o.Entity = f.get })
	t.Run("replayed", check)
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	b.open(func(o *Options) { o.Entity = f.get })
	t.Run("loaded", check)
	for i := range 100 {
		b.put(randomEvent(random, "a", fmt.Sprintf("e%02d", i%10), "new"))
	}
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Namespace: "a", Entity: "e07"})
	t.Run("changed", check)
}

func name(k Key) string { return k.Namespace + "/" + k.Entity + "/" + k.Check }

// compare compares a glance with its event.
func (b *bench) compare(g Glance, labels []string) {
	b.t.Helper()
	ev, err := b.state.Event(g.Namespace, g.Entity, g.Check)
	if err != nil {
		b.t.Fatal(err)
	}
	c := ev.Check
	want := Glance{
		Key: g.Key, Status: c.Status, Flapping: c.State == "flapping", Silenced: c.Status != 0 && c.IsSilenced,
		Timestamp: g.Timestamp, Occurrences: c.Occurrences,
	}
	if want.Timestamp != 0 {
		want.Timestamp = ev.Timestamp
	}
	for i := len(c.History) - 1; i >= 0 && (c.History[i].Status == 0) == (c.Status == 0); i-- {
		want.Since = c.History[i].Executed
		if i == 0 && len(c.History) == historyLen {
			want.Since = 0
			if c.Status != 0 {
				want.Since = c.LastOK
			}
		}
	}
	for _, key := range labels {
		want.Labels = append(want.Labels, selector.Event(ev).Label(key).String())
	}
	if !slices.Equal(g.Labels, want.Labels) {
		b.t.Errorf("labels of %s: %q, want %q", name(g.Key), g.Labels, want.Labels)
	}
	g.Labels, want.Labels = nil, nil
	if fmt.Sprint(g) != fmt.Sprint(want) {
		b.t.Errorf("glance %+v, want %+v", g, want)
	}
}

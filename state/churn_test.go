package state

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// footprint counts what a partition has room for.
type footprint struct{ entities, checks, slots, names, traits, configs int }

func (p *partition) footprint() footprint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return footprint{len(p.entities), len(p.checks.entries), int(p.used), len(p.names.names), len(p.traits.entries), len(p.configs)}
}

// TestChurnLeavesNothing: entities with checks of their own come and go. Each round needs no more room than the first.
func TestChurnLeavesNothing(t *testing.T) {
	b := newBench(t, 1)
	p := b.state.parts[0]
	const entities = 400
	var first footprint
	for round := range 6 {
		for i := range entities {
			ns, name := fmt.Sprint("ns-", round), fmt.Sprintf("host-%d-%d", round, i)
			ev := resource.Event{Check: &resource.Check{Metadata: resource.ObjectMeta{Labels: map[string]string{"round": ns}}}}
			b.append(eventlog.Record{Kind: eventlog.KindEntity, Namespace: ns, Entity: name, Body: (&resource.EntityState{}).AppendProto(nil)})
			for check := range 3 {
				b.append(eventlog.Record{Namespace: ns, Entity: name, Check: fmt.Sprintf("check-%d-%d", round, i%10*3+check), Executed: 1,
					Body: ev.AppendProto(nil)})
			}
			// A stateless event has names too.
			b.append(eventlog.Record{Namespace: ns, Entity: "metrics-of-" + name, Flags: eventlog.FlagStateless})
		}
		b.settle()
		if p.count != 3*entities {
			t.Fatalf("%d pairs, want %d", p.count, 3*entities)
		}
		for i := range entities {
			rec := eventlog.Record{Kind: eventlog.KindDeleteEntity, Namespace: fmt.Sprint("ns-", round), Entity: fmt.Sprintf("host-%d-%d", round, i)}
			if i%4 != 0 {
				b.append(rec)
				continue
			}
			for check := range 3 { // one event after the other
				rec := rec
				rec.Kind, rec.Check = eventlog.KindDeleteEvent, fmt.Sprintf("check-%d-%d", round, i%10*3+check)
				b.append(rec)
			}
			b.append(rec)
		}
		b.settle()
		if _, err := p.writeDue(nowMilli() + 1); err != nil {
			t.Fatal(err)
		}
		now := p.footprint()
		if now.names > 4*entities+3*spareNames {
			t.Errorf("%d names are left after round %d", now.names, round)
		}
		now.names = 0
		if round == 0 {
			first = now
		} else if now != first {
			t.Errorf("after round %d there is room for %+v, after the first for %+v", round, now, first)
		}
		if p.count != 0 || len(p.byName) != 0 || p.ordered.Len() != 0 || len(p.index) != 0 || len(p.wide) != 0 ||
			p.dirty.bodies != 0 || len(p.dirty.changes) != 0 || len(p.dirty.orphans) != 0 || len(p.dirty.keys) != 0 {
			t.Fatalf("after round %d something is left: %d pairs, %d entities", round, p.count, len(p.byName))
		}
	}
}

// TestEntityOfEventsAlone deletes the only event of an entity without facts of its host: the entity goes too.
func TestEntityOfEventsAlone(t *testing.T) {
	b := newBench(t, 1)
	for i := range 10 {
		name := fmt.Sprint("e", i)
		b.put(eventlog.Record{Entity: name, Check: "c", Executed: 1})
		b.put(eventlog.Record{Kind: eventlog.KindDeleteEvent, Entity: name, Check: "c"})
	}
	if p := b.state.parts[0]; len(p.byName) != 0 || len(p.entities) != 1 {
		t.Errorf("%d entities are left in %d places", len(p.byName), len(p.entities))
	}
}

// TestSearchWhileIndexesChangeTheirMeaning deletes entities and checks between the steps of a search, and adds others,
// which reuse their indexes.
func TestSearchWhileIndexesChangeTheirMeaning(t *testing.T) {
	b := newBench(t, 1)
	p := b.state.parts[0]
	b.put(eventlog.Record{Entity: "a-old", Check: "old", Executed: 1})
	b.put(eventlog.Record{Entity: "keep", Check: "c", Executed: 1})
	sel, err := selector.Parse("", `event.check.name == new && event.entity.name =~ "^z"`)
	if err != nil {
		t.Fatal(err)
	}
	sc := newScan(p, Query{Selector: sel}, time.Now().Unix())
	look := func() int {
		if err := sc.sweep(context.Background(), ""); err != nil {
			t.Fatal(err)
		}
		return len(sc.keys)
	}
	if n := look(); n != 0 {
		t.Fatalf("found %d", n)
	}
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "a-old"})
	b.put(eventlog.Record{Entity: "z-new", Check: "new", Executed: 1})
	if len(p.entities) != 2 || len(p.checks.entries) != 2 {
		t.Fatalf("%d entities, %d checks: the indexes were not used again", len(p.entities), len(p.checks.entries))
	}
	if n := look(); n != 1 {
		t.Errorf("found %d, want the new event: the answers about the old one were remembered", n)
	}
}

// TestDeadlineOfAPlaceThatWasGivenAway: if the wheel has the id of a deleted pair, the id means at most the pair that
// reuses its slot, with that pair's deadline.
func TestDeadlineOfAPlaceThatWasGivenAway(t *testing.T) {
	b := newBench(t, 1)
	b.put(eventlog.Record{Entity: "old", Check: "c", Executed: 1, Received: 1000, Due: 2000})
	b.put(eventlog.Record{Kind: eventlog.KindDeleteEntity, Entity: "old"})
	if _, armed := b.state.Due(0); armed {
		t.Error("a deleted pair has a deadline")
	}
	b.put(eventlog.Record{Entity: "new", Check: "c", Executed: 1, Received: 3000, Due: 9000})
	if due, armed := b.state.Due(0); !armed || due != 9000 {
		t.Errorf("due %d, %v: not that of the pair that is there", due, armed)
	}
	if o, ok := b.state.Overdue(0); !ok || o.Entity != "new" || o.Due != 9000 {
		t.Errorf("overdue is %+v", o)
	}
}

// TestDeadlineOfAnEventThatCannotBeRead damages stored events: their deadlines still count.
func TestDeadlineOfAnEventThatCannotBeRead(t *testing.T) {
	b := newBench(t, 1)
	b.put(eventlog.Record{Entity: "e", Check: KeepaliveCheck, Executed: 1, Received: 1000, Due: 121_000})
	b.put(eventlog.Record{Entity: "e", Check: "damaged", Status: 2, Executed: 7, Received: 1000, Due: 31_000})
	b.put(eventlog.Record{Entity: "e", Check: "missing", Executed: 7, Received: 1000, Due: 31_000})
	if err := b.state.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{KeepaliveCheck, "damaged"} {
		if err := b.db.Set(storeKey('b', 0, "default", "e", check), []byte{0xff, 0xff, 0xff}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.db.Delete(storeKey('b', 0, "default", "e", "missing"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	b.open(nil)
	seen := 0
	for id := range uint64(3) {
		due, _ := b.state.Due(id)
		o, ok := b.state.Overdue(id)
		if !ok {
			t.Errorf("deadline %d is dropped", id)
			continue
		}
		c := o.Event.Check
		if !o.Rebuilt || o.Due != due || c.Metadata.Name != o.Check || o.Event.Entity.Metadata.Name != "e" {
			t.Errorf("%s: %+v", o.Check, o)
		}
		switch o.Check {
		case KeepaliveCheck:
			if c.Timeout < 120 || c.TTL != 0 {
				t.Errorf("keepalive with timeout %d, ttl %d", c.Timeout, c.TTL)
			}
		case "damaged":
			if c.Status != 2 || c.TTL < 30 || len(c.History) != 1 {
				t.Errorf("check %+v", c)
			}
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("%d deadlines, want 3", seen)
	}
}

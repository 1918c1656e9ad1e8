package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// snapshot is the table at one moment. It never changes.
type snapshot struct {
	table   *table
	version uint64
	rows    []*Row // by slot; nil for a free one
}

// table has all entities. Only Fleet.run uses it, but for slotOf; readers get snapshots.
type table struct {
	opts     *Options
	mu       sync.RWMutex // guards slots; only run changes them
	slots    map[resource.Name]int
	rows     []*Row     // by slot; nil for a free one
	reported []reported // by slot: the report that the row shows
	free     []int
	hosts    hosts
	version  uint64 // of the next snapshot
	changed  bool   // since the last snapshot
	whole    bool   // a survey has succeeded
}

// reported is an agent's report.
type reported struct {
	position uint64
	seen     int64 // its LastSeen
}

// newTable returns a table without entities. Its first snapshot has this version.
func newTable(opts *Options, version uint64) *table {
	return &table{opts: opts, slots: map[resource.Name]int{}, hosts: hosts{}, version: version}
}

// snapshot returns the table as it is now.
func (t *table) snapshot() *snapshot {
	s := &snapshot{t, t.version, slices.Clone(t.rows)}
	t.version++
	t.changed = false
	return s
}

// survey looks at all entities and all events. Entities that are as they were keep their rows.
func (t *table) survey(ctx context.Context) error {
	viewer := t.opts.State.Viewer("", nil, nil)
	found := make([]map[resource.Name]*tally, viewer.Partitions())
	errs := make([]error, viewer.Partitions())
	var working sync.WaitGroup
	for i := range found {
		found[i] = map[resource.Name]*tally{}
		working.Go(func() {
			errs[i] = viewer.All(ctx, i, func(g state.Glance) {
				name := resource.Name{Namespace: g.Namespace, Name: g.Entity}
				one := found[i][name]
				if one == nil {
					one = new(tally)
					found[i][name] = one
				}
				one.add(&g)
			})
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	there := make(map[resource.Name]bool, len(t.slots))
	for cfg := range config.List(t.opts.Config.Snapshot(), config.Entities, "") {
		name := resource.NameOf(&cfg.Metadata)
		there[name] = true
		of := new(tally)
		for _, some := range found {
			if one, ok := some[name]; ok {
				of = one
				break
			}
		}
		t.put(name, cfg, of)
	}
	for name := range t.slots {
		if !there[name] {
			t.remove(name)
		}
	}
	t.hosts = hosts{}
	for _, row := range t.rows {
		if row != nil {
			t.hosts[row.Host.key()] = row.Host
		}
	}
	return ctx.Err()
}

// put takes an entity in as it is now. of is nil if its events are as before.
func (t *table) put(name resource.Name, cfg *resource.EntityConfig, of *tally) {
	slot, known := t.slots[name]
	if !known {
		slot = t.place(name)
	}
	old := t.rows[slot]
	row := &Row{Config: cfg, slot: slot, version: t.version, changed: t.version}
	t.report(row, old)
	if t.opts.Backend != nil {
		row.Backend = t.opts.Backend(name)
	}
	if of != nil {
		row.Events, row.Agent = of.events, of.agent(cfg.EntityClass)
	} else if old != nil {
		row.Events, row.Agent = old.Events, old.Agent
	}
	if old != nil && row.same(old) {
		if row.LastSeen == old.LastSeen {
			return
		}
		row.changed = old.changed
	}
	t.rows[slot] = row
	t.changed = true
}

// place gives a new entity a free slot.
func (t *table) place(name resource.Name) (slot int) {
	if last := len(t.free) - 1; last >= 0 {
		slot, t.free = t.free[last], t.free[:last]
		t.reported[slot] = reported{}
	} else {
		slot = len(t.rows)
		t.rows, t.reported = append(t.rows, nil), append(t.reported, reported{})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots[name] = slot
	return slot
}

// slotOf returns the slot that an entity has now. Any goroutine may ask.
func (t *table) slotOf(name resource.Name) (slot int, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	slot, ok = t.slots[name]
	return slot, ok
}

// report fills in what the agent reports. It decodes only a report that the old row does not show.
func (t *table) report(row, old *Row) {
	facts, position, seen := t.opts.State.EntityReport(row.Config.Metadata.Namespace, row.Config.Metadata.Name)
	shown := &t.reported[row.slot]
	if old != nil && position == shown.position {
		row.Host, row.Hostname, row.LastSeen = old.Host, old.Hostname, max(shown.seen, seen)
		return
	}
	facts, _ = state.SplitFacts(facts)
	var st resource.EntityState
	if st.UnmarshalProto(facts) != nil {
		st = resource.EntityState{}
	}
	*shown = reported{position, st.LastSeen}
	row.Host, row.Hostname, row.LastSeen = t.hosts.of(&st), st.System.Hostname, max(st.LastSeen, seen)
}

func (t *table) remove(name resource.Name) {
	slot, ok := t.slots[name]
	if !ok {
		return
	}
	t.mu.Lock()
	delete(t.slots, name)
	t.mu.Unlock()
	t.rows[slot] = nil
	t.free = append(t.free, slot)
	t.changed = true
}

// take takes changes in. pending says for each entity whether more than the time of its keepalive changed.
func (t *table) take(ctx context.Context, pending map[resource.Name]bool) error {
	definitions := t.opts.Config.Snapshot()
	viewer := t.opts.State.Viewer("", nil, nil)
	for name, changed := range pending {
		cfg, ok := config.Get(definitions, config.Entities, name.Namespace, name.Name)
		if !ok {
			t.remove(name)
			continue
		}
		var of *tally
		if _, known := t.slots[name]; changed || !known {
			of = new(tally)
			if err := viewer.Entity(ctx, name.Namespace, name.Name, func(g state.Glance) { of.add(&g) }); err != nil {
				return err
			}
		}
		t.put(name, cfg, of)
	}
	return ctx.Err()
}

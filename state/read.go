package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Event returns the newest event of an entity's check, or ErrNotFound.
func (s *State) Event(namespace, entity, check string) (*resource.Event, error) {
	p := s.parts[s.opts.Log.Partition(namespace, entity)]
	return p.event(s.opts.DB, namespace, entity, check)
}

// store is where bodies are read that are not in memory.
type store interface {
	Get(key []byte) (value []byte, closer io.Closer, err error)
}

// event reads a pair's event. The body is in memory while it is dirty, and else in Pebble. If the pair changes during
// the read, it is read again.
func (p *partition) event(from store, namespace, entity, check string) (*resource.Event, error) {
	for {
		p.mu.Lock()
		slot, ok := p.find(namespace, entity, check)
		if !ok {
			p.mu.Unlock()
			return nil, ErrNotFound
		}
		pr := *p.at(slot)
		wide := slices.Clone(p.wide[slot])
		var body []byte
		if pr.body != 0 {
			body = slices.Clone(p.dirty.arena.Get(pr.body))
		}
		p.mu.Unlock()
		if pr.body != 0 {
			ev, err := p.build(namespace, entity, body, &pr, wide)
			p.state.silence(ev)
			return ev, err
		}
		stored, closer, err := from.Get(storeKey('b', p.id, namespace, entity, check))
		if errors.Is(err, pebble.ErrNotFound) {
			if p.changed(namespace, entity, check, pr.pos) {
				continue
			}
			return nil, fmt.Errorf("read event %s/%s/%s: its body is missing", namespace, entity, check)
		}
		if err != nil {
			return nil, fmt.Errorf("read event %s/%s/%s: %w", namespace, entity, check, err)
		}
		ev, err := p.build(namespace, entity, stored, &pr, wide)
		_ = closer.Close()
		if p.changed(namespace, entity, check, pr.pos) {
			continue // the body may be newer than the pair
		}
		p.state.silence(ev)
		return ev, err
	}
}

// silence sets the silences of an event to those that apply now; ev may be nil.
func (s *State) silence(ev *resource.Event) {
	if ev == nil || ev.Check == nil || s.opts.Silences == nil {
		return
	}
	ev.Check.Silenced, ev.Check.IsSilenced = nil, false
	if of := s.opts.Silences(); of != nil {
		cfg, _ := s.opts.Entity(ev.Entity.Metadata.Namespace, ev.Entity.Metadata.Name)
		ev.Check.Silenced = of(resource.SilenceableOf(ev, cfg))
		ev.Check.IsSilenced = len(ev.Check.Silenced) > 0
	}
}

// changed reports whether a pair is no longer at a position.
func (p *partition) changed(namespace, entity, check string, pos uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot, ok := p.find(namespace, entity, check)
	return !ok || p.at(slot).pos != pos
}

// build makes an event whole: its body, its entity, and the state. pr is nil for metrics only; wide may be nil if the
// fold itself calls.
func (p *partition) build(namespace, entity string, body []byte, pr *pair, wide []resource.CheckHistory) (*resource.Event, error) {
	ev := new(resource.Event)
	if err := ev.UnmarshalProto(body); err != nil {
		return nil, fmt.Errorf("decode event of %s/%s: %w", namespace, entity, err)
	}
	ev.Entity = p.state.entity(p, namespace, entity, ev.Entity)
	if pr != nil && ev.Check != nil {
		if wide == nil {
			wide = p.wideOf(pr)
		}
		pr.overlay(ev.Check, wide)
	}
	return ev, nil
}

// Rebuild returns an event of the past from its body (Applied.Body), with its entity as it is now. It lacks the state after
// the event: the history, the occurrences and the name of the state.
func (s *State) Rebuild(namespace, entity string, body []byte) (*resource.Event, error) {
	return s.parts[s.opts.Log.Partition(namespace, entity)].build(namespace, entity, body, nil, nil)
}

// entity joins an entity's configuration with its state. If it is not registered, the event's own entity, carried, is
// used; if that is nil, one with only a name.
func (s *State) entity(p *partition, namespace, name string, carried *resource.Entity) *resource.Entity {
	cfg, ok := s.opts.Entity(namespace, name)
	if !ok && carried != nil {
		carried.Metadata.Namespace, carried.Metadata.Name = namespace, name
		return carried
	}
	st, _ := p.entityState(namespace, name, false)
	if !ok {
		cfg = unregistered(namespace, name)
	}
	return resource.JoinEntity(cfg, st)
}

func unregistered(namespace, name string) *resource.EntityConfig {
	return &resource.EntityConfig{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, EntityClass: resource.EntityAgentClass}
}

func (s *State) entityConfig(namespace, name string) *resource.EntityConfig {
	if cfg, ok := s.opts.Entity(namespace, name); ok {
		return cfg
	}
	return unregistered(namespace, name)
}

// EntityState returns the facts that an entity's agent reported last; false if there are none.
func (s *State) EntityState(namespace, name string) (*resource.EntityState, bool) {
	return s.parts[s.opts.Log.Partition(namespace, name)].entityState(namespace, name, true)
}

// EntityFacts is EntityState without the processes of the host. Lists and events have no more.
func (s *State) EntityFacts(namespace, name string) (*resource.EntityState, bool) {
	return s.parts[s.opts.Log.Partition(namespace, name)].entityState(namespace, name, false)
}

func (p *partition) entityState(namespace, name string, processes bool) (*resource.EntityState, bool) {
	body, _, seen := p.entityReport(namespace, name)
	if body == nil {
		return nil, false
	}
	if !processes {
		body, _ = SplitFacts(body)
	}
	st := new(resource.EntityState)
	if err := st.UnmarshalProto(body); err != nil {
		p.state.metrics.undecodable.Inc()
		return nil, false
	}
	st.LastSeen = max(st.LastSeen, seen)
	return st, true
}

// EntityReport returns what there is of an entity without decoding it: the facts that its agent reported last, as AppendFacts
// encodes them, the position of that report, and when the agent was heard of last, in Unix seconds. facts is nil if there
// are none, and must not be changed.
func (s *State) EntityReport(namespace, name string) (facts []byte, position uint64, seen int64) {
	return s.parts[s.opts.Log.Partition(namespace, name)].entityReport(namespace, name)
}

func (p *partition) entityReport(namespace, name string) (facts []byte, position uint64, seen int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.findEntity(namespace, name, false)
	if !ok {
		return nil, 0, 0
	}
	return p.entities[i].body, p.entities[i].pos, p.lastSeen(i) // the body is replaced, never changed in place
}

// lastSeen returns when an entity's agent was last heard of. Keepalives are folded as results of the keepalive check,
// so that is its newest good result. The caller holds mu.
func (p *partition) lastSeen(entity uint32) int64 {
	if slot, ok := p.findPair(entity, KeepaliveCheck, false); ok {
		return p.at(slot).lastOK
	}
	return 0
}

// EntityStateBytes returns the same facts as they were logged, encoded.
func (s *State) EntityStateBytes(namespace, name string) []byte {
	p := s.parts[s.opts.Log.Partition(namespace, name)]
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.findEntity(namespace, name, false); ok {
		return p.entities[i].body
	}
	return nil
}

// KeepaliveCheck is the name of the check of an agent's keepalives.
const KeepaliveCheck = "keepalive"

// Events lists newest events as Select does: of one namespace or all (""), of one entity or all (""), at most limit (0
// for all), from behind the place that an earlier call returned as next. next is "" at the end.
func (s *State) Events(namespace, entity, after string, limit int) (events []*resource.Event, next string, err error) {
	page, err := s.Select(context.Background(), Query{Namespace: namespace, Entity: entity, After: after, Limit: limit})
	if err != nil {
		return nil, "", err
	}
	for ev, err := range page.Events() {
		if err != nil {
			return nil, "", err
		}
		events = append(events, ev)
	}
	return events, page.Next, nil
}

// Overdue is a pair whose deadline has passed.
type Overdue struct {
	Namespace, Entity, Check string
	Position                 uint64 // of the last event
	Received                 int64  // when that event was received, Unix milliseconds
	Due                      int64  // Unix milliseconds
	LastOK                   int64  // Unix seconds
	Event                    *resource.Event
	Rebuilt                  bool // the event could not be read: Event has only what the state has
	Missing                  bool // the event says already that there was no result in time
	KeepaliveFailing         bool // the entity's keepalive is not OK
	Partition                int
	Origin                   string // the backend that the last event came through; "" if it came before the start
}

// Size returns how many entities and events there are.
func (s *State) Size() (entities, events int) {
	for _, p := range s.parts {
		p.mu.Lock()
		entities += p.ordered.Len()
		events += p.count
		p.mu.Unlock()
	}
	return entities, events
}

// Due returns a pair's present deadline in Unix milliseconds, by the id that Arm got; false if it has none.
func (s *State) Due(id uint64) (due int64, armed bool) {
	p := s.parts[id>>32]
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := uint32(id)
	if slot >= p.used {
		return 0, false
	}
	pr := p.at(slot)
	return pr.due, pr.flags&pairUsed != 0 && pr.due != 0
}

// Overdue describes the pair of a deadline; false if it is gone. A deadline counts even if its event cannot be read: a
// damaged block must not hide that a host is dead.
func (s *State) Overdue(id uint64) (Overdue, bool) {
	p := s.parts[id>>32]
	slot := uint32(id)
	p.mu.Lock()
	if slot >= p.used || p.at(slot).flags&pairUsed == 0 {
		p.mu.Unlock()
		return Overdue{}, false
	}
	pr := *p.at(slot)
	e := p.entities[pr.entity]
	o := Overdue{
		Namespace: e.namespace, Entity: e.name, Check: p.checks.name(pr.check),
		Position: pr.pos, Received: pr.received, Due: pr.due, LastOK: pr.lastOK,
		Partition: p.id, Origin: p.heard[pr.origin], Missing: pr.flags&pairMissing != 0,
	}
	if k, ok := p.findPair(pr.entity, KeepaliveCheck, false); ok {
		o.KeepaliveFailing = p.at(k).incident(p.wide[k])
	}
	wide := slices.Clone(p.wide[slot])
	p.mu.Unlock()
	ev, err := p.event(s.opts.DB, o.Namespace, o.Entity, o.Check)
	switch {
	case errors.Is(err, ErrNotFound):
		return Overdue{}, false
	case err != nil || ev.Check == nil:
		s.metrics.deadlinesRebuilt.Inc()
		s.rare.Error("event of a deadline cannot be read: the deadline counts without the event's data", "",
			"namespace", o.Namespace, "entity", o.Entity, "check", o.Check, "err", err)
		o.Event, o.Rebuilt = p.rebuild(&o, &pr, wide), true
	default:
		o.Event = ev
	}
	return o, true
}

// rebuild makes an event of a pair's state. Its deadline replaces the check's TTL, or a keepalive's timeout.
func (p *partition) rebuild(o *Overdue, pr *pair, wide []resource.CheckHistory) *resource.Event {
	period := max(1, (o.Due-o.Received)/1000)
	c := &resource.Check{
		Metadata: resource.ObjectMeta{Namespace: o.Namespace, Name: o.Check}, Interval: uint32(min(period, math.MaxUint32)),
		Status: pr.status(wide), Executed: pr.lastExecuted(wide), Issued: pr.lastExecuted(wide),
	}
	if o.Check == KeepaliveCheck {
		c.Timeout = c.Interval
	} else {
		c.TTL = period
	}
	p.mu.Lock()
	if pr.traits != 0 && p.traits.at(pr.traits) != nil {
		t := p.traits.at(pr.traits)
		c.Handlers, c.Publish, c.RoundRobin, c.Subscriptions = t.Handlers, t.Publish, t.RoundRobin, t.Subscriptions
	}
	p.mu.Unlock()
	pr.overlay(c, wide)
	ev := &resource.Event{Timestamp: o.Received / 1000, Metadata: resource.ObjectMeta{Namespace: o.Namespace}, Check: c}
	ev.Entity = p.state.entity(p, o.Namespace, o.Entity, nil)
	p.state.silence(ev)
	return ev
}

package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Event is the newest event of an entity's check, or ErrNotFound.
func (s *State) Event(namespace, entity, check string) (*resource.Event, error) {
	p := s.parts[s.opts.Log.Partition(namespace, entity)]
	return p.event(namespace, entity, check)
}

// event reads a pair's event. The body is in memory while it is dirty and in Pebble otherwise; a pair that is read between
// its event being replaced and written is read again.
func (p *partition) event(namespace, entity, check string) (*resource.Event, error) {
	for {
		p.mu.Lock()
		slot, ok := p.find(namespace, entity, check)
		if !ok {
			p.mu.Unlock()
			return nil, ErrNotFound
		}
		pr := *p.at(slot)
		wide := slices.Clone(p.wide[slot])
		dirty, inMemory := p.dirty.bodies[slot]
		body := slices.Clone(dirty.body)
		p.mu.Unlock()
		if inMemory {
			return p.build(namespace, entity, body, &pr, wide)
		}
		stored, closer, err := p.state.opts.DB.Get(storeKey('b', p.id, namespace, entity, check))
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
		return ev, err
	}
}

// changed says that a pair is no longer at a position.
func (p *partition) changed(namespace, entity, check string, pos uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot, ok := p.find(namespace, entity, check)
	return !ok || p.at(slot).pos != pos
}

// build makes an event whole: its body, its entity, and what the fold knows. pr is nil for metrics only; wide may be nil
// when the caller is the fold itself.
func (p *partition) build(namespace, entity string, body []byte, pr *pair, wide []resource.CheckHistory) (*resource.Event, error) {
	ev := new(resource.Event)
	if err := ev.UnmarshalProto(body); err != nil {
		return nil, fmt.Errorf("decode event of %s/%s: %w", namespace, entity, err)
	}
	ev.Entity = p.state.entity(p, namespace, entity)
	if pr != nil && ev.Check != nil {
		if wide == nil {
			wide = p.wideOf(pr)
		}
		pr.overlay(ev.Check, wide)
	}
	return ev, nil
}

// entity joins an entity's configuration with its state. One that is not registered is made from its name.
func (s *State) entity(p *partition, namespace, name string) *resource.Entity {
	cfg, ok := s.opts.Entity(namespace, name)
	if !ok {
		cfg = &resource.EntityConfig{Metadata: resource.ObjectMeta{Namespace: namespace, Name: name}, EntityClass: resource.EntityAgentClass}
	}
	st, _ := p.entityState(namespace, name)
	return resource.JoinEntity(cfg, st)
}

// EntityState is what an entity's agent last said of itself; false if it never did.
func (s *State) EntityState(namespace, name string) (*resource.EntityState, bool) {
	return s.parts[s.opts.Log.Partition(namespace, name)].entityState(namespace, name)
}

func (p *partition) entityState(namespace, name string) (*resource.EntityState, bool) {
	p.mu.Lock()
	i, ok := p.findEntity(namespace, name, false)
	var body []byte
	var seen int64
	if ok {
		body = p.entities[i].body // replaced, never changed in place
		if slot, ok := p.findPair(i, KeepaliveCheck, false); ok {
			seen = p.at(slot).lastOK
		}
	}
	p.mu.Unlock()
	if body == nil {
		return nil, false
	}
	st := new(resource.EntityState)
	if err := st.UnmarshalProto(body); err != nil {
		p.state.metrics.undecodable.Inc()
		return nil, false
	}
	// An agent's keepalives are folded as its keepalive check's results: the newest good one is when it was last seen.
	st.LastSeen = max(st.LastSeen, seen)
	return st, true
}

// EntityStateBytes is the encoding of what an entity's agent last said of itself, as it was logged.
func (s *State) EntityStateBytes(namespace, name string) []byte {
	p := s.parts[s.opts.Log.Partition(namespace, name)]
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.findEntity(namespace, name, false); ok {
		return p.entities[i].body
	}
	return nil
}

// KeepaliveCheck is the name of the check that an agent's keepalives are results of.
const KeepaliveCheck = "keepalive"

// Events lists newest events, ordered by namespace, entity and check: of one namespace or all (""), of one entity or all
// (""), at most limit (0 for all), from behind the place that an earlier call gave as next. next is "" at the end.
func (s *State) Events(namespace, entity, after string, limit int) (events []*resource.Event, next string, err error) {
	keys := s.keys(namespace, entity, after, limit)
	more := limit > 0 && len(keys) > limit
	if more {
		keys = keys[:limit]
	}
	for _, k := range keys {
		next = strings.Join([]string{k.namespace, k.entity, k.check}, "\x00")
		ev, err := k.partition.event(k.namespace, k.entity, k.check)
		if errors.Is(err, ErrNotFound) {
			continue // deleted since
		}
		if err != nil {
			return nil, "", err
		}
		events = append(events, ev)
	}
	if !more {
		next = ""
	}
	return events, next, nil
}

type eventKey struct {
	partition                *partition
	namespace, entity, check string
}

// keys are the keys of events in order, from behind after on. With a limit it gives a little more than that many, if there
// are: each partition is in order by itself, so none needs to give more.
func (s *State) keys(namespace, entity, after string, limit int) []eventKey {
	var from eventKey
	start := namespace
	if parts := strings.Split(after, "\x00"); len(parts) == 3 {
		from = eventKey{namespace: parts[0], entity: parts[1], check: parts[2]}
		start = max(start, from.namespace+"\x00"+from.entity)
	}
	parts := s.parts
	if namespace != "" && entity != "" {
		parts = s.parts[s.opts.Log.Partition(namespace, entity):][:1]
		start = max(start, namespace+"\x00"+entity)
	}
	var keys []eventKey
	for _, p := range parts {
		p.mu.Lock()
		found := 0
		p.ordered.Ascend(start, func(_ string, i uint32) bool {
			e := &p.entities[i]
			if namespace != "" && e.namespace != namespace {
				return e.namespace < namespace
			}
			if entity != "" && e.name != entity {
				return namespace == "" || e.name < entity
			}
			for slot := e.first; slot != 0; slot = p.at(slot - 1).next {
				k := eventKey{p, e.namespace, e.name, p.checks[p.at(slot-1).check]}
				if after == "" || compareKeys(k, from) > 0 {
					keys = append(keys, k)
					found++
				}
			}
			return limit <= 0 || found <= limit
		})
		p.mu.Unlock()
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func compareKeys(a, b eventKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.entity, b.entity), cmp.Compare(a.check, b.check))
}

// Overdue is a pair whose deadline has passed.
type Overdue struct {
	Namespace, Entity, Check string
	Position                 uint64 // of the event that nothing followed
	Received                 int64  // when that was received, Unix milliseconds
	Due                      int64  // Unix milliseconds
	LastOK                   int64  // Unix seconds
	Event                    *resource.Event
	KeepaliveFailing         bool // the entity's keepalive is not OK
}

// Due is a pair's present deadline in Unix milliseconds, by the id that Arm was given; false if it has none.
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

// Overdue describes the pair of a deadline; false if there is none any more.
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
		Namespace: e.namespace, Entity: e.name, Check: p.checks[pr.check],
		Position: pr.pos, Received: pr.received, Due: pr.due, LastOK: pr.lastOK,
	}
	if k, ok := p.findPair(pr.entity, KeepaliveCheck, false); ok {
		o.KeepaliveFailing = p.at(k).incident(p.wide[k])
	}
	p.mu.Unlock()
	ev, err := p.event(o.Namespace, o.Entity, o.Check)
	if err != nil {
		return Overdue{}, false
	}
	o.Event = ev
	return o, true
}

package state

import (
	"iter"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Pair describes an entity's check from memory.
type Pair struct {
	Namespace, Entity, Check string
	Seq                      uint64 // the message of its newest event
	Received                 int64  // when its newest event was received, Unix milliseconds
	Due                      int64  // its deadline, Unix milliseconds; 0 if it has none
	Published                bool   // that event has the publish flag: its check is scheduled
	Status                   uint32
	Executed                 int64            // when the newest result was executed, Unix seconds
	Ran                      int64            // when the newest result of a run was received, Unix seconds; 0 = never, as far as is known
	Traits                   *resource.Traits // of the newest event; nil if they are not known yet
}

// Pairs returns all pairs of a namespace, or of all for "", in no order. Pairs that are added or deleted during the
// iteration may be missing.
func (s *State) Pairs(namespace string) iter.Seq[Pair] {
	return pairs(s.parts, namespace)
}

// PairsIn is Pairs for all namespaces of one partition.
func (s *State) PairsIn(partition int) iter.Seq[Pair] {
	return pairs(s.parts[partition:partition+1], "")
}

func pairs(parts []*partition, namespace string) iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		var found []Pair
		for _, p := range parts {
			for first, more := uint32(0), true; more; first += chunkLen {
				found = found[:0]
				p.mu.Lock()
				last := min(first+chunkLen, p.used)
				more = last < p.used
				for slot := first; slot < last; slot++ {
					if pr := p.at(slot); pr.flags&pairUsed != 0 && (namespace == "" || p.entities[pr.entity].namespace == namespace) {
						found = append(found, p.describe(slot))
					}
				}
				p.mu.Unlock()
				for _, pair := range found {
					if !yield(pair) {
						return
					}
				}
			}
		}
	}
}

// PairsOf returns an entity's pairs.
func (s *State) PairsOf(namespace, entity string) (found []Pair) {
	p := s.parts[s.opts.Log.Partition(namespace, entity)]
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.findEntity(namespace, entity, false)
	if !ok {
		return nil
	}
	for slot := p.entities[i].first; slot != 0; slot = p.at(slot - 1).next {
		found = append(found, p.describe(slot-1))
	}
	return found
}

// describe returns a pair's description. The caller holds mu.
func (p *partition) describe(slot uint32) Pair {
	pr := p.at(slot)
	e, wide := &p.entities[pr.entity], p.wideOf(pr)
	d := Pair{
		Namespace: e.namespace, Entity: e.name, Check: p.checks.name(pr.check), Seq: pr.pos >> subBits, Received: pr.received, Due: pr.due,
		Status: pr.status(wide), Executed: pr.lastExecuted(wide), Ran: int64(pr.ran),
	}
	if pr.traits != 0 {
		d.Traits = p.traits.at(pr.traits)
		d.Published = d.Traits.Publish
	}
	return d
}

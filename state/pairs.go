package state

import "iter"

// Pair describes an entity's check from memory.
type Pair struct {
	Namespace, Entity, Check string
	Received                 int64 // when its newest event was received, Unix milliseconds
	Published                bool  // that event has the publish flag: its check is scheduled
}

// Pairs returns all pairs of a namespace, or of all for "", in no order. Pairs that are added or deleted during the
// iteration may be missing.
func (s *State) Pairs(namespace string) iter.Seq[Pair] {
	return func(yield func(Pair) bool) {
		var found []Pair
		for _, p := range s.parts {
			for first, more := uint32(0), true; more; first += chunkLen {
				found = found[:0]
				p.mu.Lock()
				last := min(first+chunkLen, p.used)
				more = last < p.used
				for slot := first; slot < last; slot++ {
					if pr := p.at(slot); pr.flags&pairUsed != 0 && (namespace == "" || p.entities[pr.entity].namespace == namespace) {
						found = append(found, p.describe(pr))
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
		found = append(found, p.describe(p.at(slot-1)))
	}
	return found
}

// describe returns a pair's description. The caller holds mu.
func (p *partition) describe(pr *pair) Pair {
	e := &p.entities[pr.entity]
	return Pair{
		Namespace: e.namespace, Entity: e.name, Check: p.checks.name(pr.check), Received: pr.received,
		Published: pr.traits != 0 && p.traits.at(pr.traits).Publish,
	}
}

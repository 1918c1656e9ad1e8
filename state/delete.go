package state

import "github.com/lapwing-monitoring/lapwing/eventlog"

// deleteEvent deletes a pair, and returns it if there was one older than the record.
func (p *partition) deleteEvent(pos uint64, rec *eventlog.Record) (gone []Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot, ok := p.find(rec.Namespace, rec.Entity, rec.Check)
	if !ok || p.at(slot).pos >= pos {
		return nil
	}
	p.displaced(p.at(slot), pos, rec.Received)
	p.unlink(slot)
	p.noteDeletion(slot, pos, rec.Received)
	i := p.at(slot).entity
	p.dropPair(slot, pos)
	if e := &p.entities[i]; e.first == 0 && e.pos == 0 {
		p.dropEntity(i) // only its events had made it known
	}
	return []Update{{Deleted: true, Namespace: rec.Namespace, Entity: rec.Entity, Check: rec.Check}}
}

// deleteEntity deletes an entity with those of its pairs that are older than the record, and returns them.
func (p *partition) deleteEntity(pos uint64, rec *eventlog.Record) (gone []Update) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.findEntity(rec.Namespace, rec.Entity, false); ok {
		e := &p.entities[i]
		for s := e.first; s != 0; s = p.at(s - 1).next {
			if pr := p.at(s - 1); pr.pos < pos {
				p.displaced(pr, pos, rec.Received)
			}
		}
		var kept uint32
		for s := e.first; s != 0; {
			slot := s - 1
			pr := p.at(slot)
			s = pr.next
			if pr.pos > pos { // a replay meets stored state that is newer than this record
				pr.next, kept = kept, slot+1
				continue
			}
			gone = append(gone, Update{Deleted: true, Namespace: e.namespace, Entity: e.name, Check: p.checks.name(pr.check)})
			p.noteDeletion(slot, pos, rec.Received)
			p.dropPair(slot, pos)
		}
		e.first = kept
		if kept == 0 && e.pos <= pos {
			p.dirty.set(pos, storeKey('e', p.id, e.namespace, e.name, ""), nil)
			p.dropEntity(i)
		}
	}
	return gone
}

// unlink removes a pair from its entity's list.
func (p *partition) unlink(slot uint32) {
	pr := p.at(slot)
	e := &p.entities[pr.entity]
	if e.first == slot+1 {
		e.first = pr.next
		return
	}
	for s := e.first; s != 0; s = p.at(s - 1).next {
		if before := p.at(s - 1); before.next == slot+1 {
			before.next = pr.next
			return
		}
	}
}

// dropEntity releases an entity's index. No pair refers to it any more. Others that do check renamed. A dirty item may
// find that the index now belongs to another entity, which is not dirty or is written early; both do no harm.
func (p *partition) dropEntity(i uint32) {
	e := &p.entities[i]
	p.scratch = entityKey(p.scratch[:0], e.namespace, e.name)
	delete(p.byName, string(p.scratch))
	p.ordered.Delete(string(p.scratch))
	p.forgetConfig(i)
	*e = entity{}
	p.unused = append(p.unused, i)
}

// dropPair deletes a pair that is no longer in its entity's list, and has its stored copy removed.
func (p *partition) dropPair(slot uint32, pos uint64) {
	pr := p.at(slot)
	e := &p.entities[pr.entity]
	check := p.checks.name(pr.check)
	p.dirty.set(pos, storeKey('s', p.id, e.namespace, e.name, check), nil)
	p.dirty.set(pos, storeKey('b', p.id, e.namespace, e.name, check), nil)
	p.dirty.forget(slot, pr)
	delete(p.index, uint64(pr.entity)<<32|uint64(pr.check))
	delete(p.wide, slot)
	p.traits.drop(pr.traits)
	p.checks.drop(pr.check)
	*pr = pair{}
	p.free = append(p.free, slot)
	p.count--
}

package handler

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// Own begins to run the deliveries of a partition: the stored ones, and from now on the deliveries of Dispatch. Package
// fold calls it when this backend is to act for the partition, after the Fold of everything before. roster is the number
// of the cluster's roster that makes it the owner, 0 if it is alone: it is in the reports.
func (d *Dispatcher) Own(partition int, roster uint64) error {
	l := d.ledger(partition)
	if err := l.begin(roster); err != nil {
		return err
	}
	stored, local, err := d.unfinished(l)
	if err != nil {
		return fmt.Errorf("read stored deliveries of partition %d: %w", partition, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var woken []*queue
	for in, some := range stored {
		q := d.queueOf(in.name)
		q.addStored(in.lane, l, some)
		woken = append(woken, q)
	}
	for _, it := range local {
		q := d.queueOf(resource.Name{Namespace: it.Namespace, Name: it.Handler})
		q.add(it)
	}
	for _, q := range woken {
		q.mu.Lock()
		q.wake()
		q.mu.Unlock()
	}
	return nil
}

// place is a handler's part of a lane.
type place struct {
	name resource.Name
	lane int
}

// found is a stored delivery.
type found struct {
	pair pair
	spot spot // without its lane
}

// unfinished removes what is stored of messages that are routed again, and returns where the others are, and the local
// ones.
func (d *Dispatcher) unfinished(l *ledger) (stored map[place][]found, local []*item, err error) {
	f := d.newFolding(l.partition)
	defer f.batch.Close()
	if err := f.removeBehind(l.from); err != nil {
		return nil, nil, err
	}
	if !f.batch.Empty() {
		if err := f.batch.Commit(pebble.NoSync); err != nil {
			return nil, nil, err
		}
	}
	d.letters.folded(f.letters, f.counts)
	stored = map[place][]found{}
	var keys [][]byte
	err = d.eachKey('q', func(key, value []byte, name resource.Name, lane int, pos position) error {
		switch lane {
		case l.partition, handedLane(l.partition):
			dl, err := decodeShared(name, lane, pos, value)
			if err != nil {
				d.discard(l, key, err)
				return nil
			}
			in := place{name, lane}
			stored[in] = append(stored[in], found{pairOf(dl), spot{pos: pos, class: dl.Class(), size: int32(len(dl.Event))}})
		case localLane(l.partition):
			keys = append(keys, bytes.Clone(key))
		}
		return nil
	})
	for _, key := range keys {
		it, bad := d.readStored(key, l)
		if errors.Is(bad, errMalformed) {
			d.discard(l, key, bad)
			continue
		}
		if bad != nil {
			return nil, nil, bad
		}
		local = append(local, it)
	}
	return stored, local, err
}

// addStored notes the stored deliveries of a lane that this backend now owns.
func (q *queue) addStored(id int, l *ledger, some []found) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln := q.lanes[id]
	if ln == nil {
		ln = &lane{id: id, ledger: l}
		q.lanes[id] = ln
	}
	for _, f := range some {
		f.spot.lane = ln
		q.shelve(f.pair, f.spot)
	}
}

// Disown ends what Own began: another backend is to act for the partition. Its deliveries are dropped from memory; those
// that run go on to their end, which is not reported. When it returns, this backend appends no report any more: those
// that come behind the change of the owner in the log must not be folded anywhere, even if this backend owns the
// partition again by then. Package fold calls it, and Dispatch of the partition only after the next Own.
func (d *Dispatcher) Disown(partition int) {
	l := d.ledger(partition)
	l.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	next := newLedger(d, partition)
	l.mu.Lock()
	next.known, next.term = l.known, l.term
	l.mu.Unlock()
	d.ledgers[partition] = next
	for _, q := range d.queues {
		q.disown(l)
	}
	d.letters.abandon(l)
}

// disown drops what a queue has of a ledger.
func (q *queue) disown(l *ledger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, ln := range q.lanes {
		if ln.ledger == l {
			for class, n := range ln.spilled {
				q.spilled[class] -= n
			}
			ln.spilled = counts{}
			delete(q.lanes, id)
		}
	}
	q.abandon()
	lists := []*chainList{&q.leaving}
	for i := range q.ready {
		lists = append(lists, &q.ready[i])
	}
	for _, list := range lists {
		var chains []*chain
		for list.head != nil {
			chains = append(chains, list.pop())
		}
		for _, c := range chains {
			if q.purge(c, l); c.head != nil {
				q.turn(c)
			}
		}
	}
	for _, c := range q.chains {
		q.purge(c, l)
	}
	q.purgeGroups()
	q.wake()
}

// purge drops the deliveries of a ledger from a chain, except one that runs: afterTurn drops that. The caller holds mu.
func (q *queue) purge(c *chain, l *ledger) {
	first := c.head
	var left []*item
	for it := c.head; it != nil; it = it.next {
		if it.ledger == l && it.begin.IsZero() {
			q.forget(it)
			continue
		}
		left = append(left, it)
	}
	c.head, c.tail = nil, nil
	for _, it := range left {
		it.next = nil
		if c.head == nil {
			c.head = it
		} else {
			c.tail.next = it
		}
		c.tail = it
	}
	if c.head != first && c.index > 0 {
		q.unwait(c)
		if c.head != nil {
			q.turn(c) // the wait was that of the first delivery
		}
	}
	if c.head == nil {
		c.stopped = false // the next one of the pair has its turn, and does not overtake a group that a worker has either
		if c.members == 0 {
			delete(q.chains, c.pair)
		}
	}
}

// purgeGroups drops the deliveries of ledgers that are over from the groups that no worker has. The caller holds mu.
func (q *queue) purgeGroups() {
	for _, g := range slices.Clone(q.groupWaits) {
		if q.leave(g); len(g.members) == 0 {
			q.unwaitGroup(g)
		}
	}
	q.sealed = slices.DeleteFunc(q.sealed, func(g *group) bool {
		q.leave(g)
		return len(g.members) == 0
	})
}

// leave drops the members of a group whose ledgers are over. The caller holds mu.
func (q *queue) leave(g *group) {
	left := g.members[:0]
	for _, m := range g.members {
		if m.ledger.isOver() {
			q.release(m)
			continue
		}
		left = append(left, m)
	}
	clear(g.members[len(left):])
	g.members = left
}

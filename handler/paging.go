package handler

import (
	"container/list"

	"github.com/lapwing-monitoring/lapwing/delivery"
)

// This file has the spilled deliveries of a queue: where each is, and in which order they are read back.

// spot is the place of a spilled delivery. There may be a million of them, so it is small.
type spot struct {
	lane  *lane
	pos   position
	size  int32 // of its event
	class delivery.Class
}

// shelf has the spilled deliveries of a pair, in their order.
type shelf struct {
	pair  pair
	spots []spot
	first uint64 // number of the first spot
	lasts lasts
	taken int            // so many of the first are being read
	in    *list.Element  // of a line; nil if all are being read
	class delivery.Class // of this line
}

// shelve notes a spilled delivery. The caller holds mu.
func (q *queue) shelve(p pair, s spot) {
	sh := q.shelves[p]
	if sh == nil {
		sh = &shelf{pair: p, first: 1}
		q.shelves[p] = sh
	}
	sh.append(s)
	s.lane.spilled[s.class]++
	q.spilled[s.class]++
	q.line(sh)
}

func (sh *shelf) append(s spot) {
	sh.lasts[s.class] = sh.first + uint64(len(sh.spots))
	sh.spots = append(sh.spots, s)
}

// line puts a shelf at the end of the line of its class, unless it is in that one already. The caller holds mu.
func (q *queue) line(sh *shelf) {
	if len(sh.spots) == sh.taken {
		return
	}
	class := sh.lasts.class(sh.first + uint64(sh.taken))
	if sh.in != nil && sh.class == class {
		return
	}
	q.unline(sh)
	sh.class, sh.in = class, q.lines[class].PushBack(sh)
}

func (q *queue) unline(sh *shelf) {
	if sh.in != nil {
		q.lines[sh.class].Remove(sh.in)
		sh.in = nil
	}
}

// pageDue reports whether spilled deliveries should be read back. The caller holds mu.
func (q *queue) pageDue() bool {
	roomy := func(h held) bool { return h.count <= q.d.opts.QueueSize/2 && h.bytes <= q.d.opts.QueueBytes/2 }
	return q.spilled.sum() > 0 && !q.paging && q.parked.sum() < q.d.opts.ParkSize &&
		(roomy(q.others) || roomy(q.changes) && q.lines[delivery.Change].Len() > 0)
}

// plan takes spots for a page, with the class of their shelf: one of each shelf in turns, of the higher classes first,
// until memory is full. The caller holds mu.
func (q *queue) plan() (plan []spot, shelves []*shelf) {
	var rooms [delivery.Classes]*held
	changes, others := q.changes, q.others
	for c := range delivery.Class(delivery.Classes) {
		if rooms[c] = &others; c == delivery.Change {
			rooms[c] = &changes
		}
	}
	next := func(c delivery.Class) (*shelf, spot) {
		sh := q.lines[c].Front().Value.(*shelf)
		return sh, sh.spots[sh.taken]
	}
	room := func(c delivery.Class) bool {
		if q.lines[c].Len() == 0 {
			return false
		}
		_, s := next(c)
		return q.fits(*rooms[c], int(s.size))
	}
	for {
		c, ok := q.pages.next(room)
		if !ok {
			return plan, shelves
		}
		q.pages.turns++
		sh, s := next(c)
		q.unline(sh)
		if sh.taken == 0 {
			shelves = append(shelves, sh)
		}
		sh.taken++
		q.line(sh)
		s.class = c
		plan = append(plan, s)
		rooms[c].count++
		rooms[c].bytes += int(s.size)
	}
}

// pageIn reads spilled deliveries into memory. It unlocks mu while it reads. False means that it failed, or that the next
// ones do not fit yet.
func (q *queue) pageIn() bool {
	plan, shelves := q.plan()
	if len(plan) == 0 {
		return false
	}
	q.paging = true
	q.mu.Unlock()
	items, err := q.d.readPage(q.name, plan)
	q.mu.Lock()
	q.paging = false
	if err != nil {
		for _, sh := range shelves {
			sh.taken = 0
			q.line(sh)
		}
		q.d.metrics.storeErrors.Inc()
		q.d.rare.Error("stored deliveries could not be read and will be tried again", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name, "err", err)
		return false
	}
	for _, sh := range shelves {
		for _, s := range sh.spots[:sh.taken] {
			s.lane.spilled[s.class]--
			q.spilled[s.class]--
		}
		sh.first += uint64(sh.taken)
		sh.spots, sh.taken = sh.spots[sh.taken:], 0
		if len(sh.spots) == 0 && q.shelves[sh.pair] == sh {
			delete(q.shelves, sh.pair)
		}
	}
	for i, it := range items {
		if it != nil && q.lanes[plan[i].lane.id] == plan[i].lane { // else Disown came first
			it.urgent = plan[i].class == delivery.Change
			q.put(it)
		}
	}
	if q.spilled.sum() == 0 {
		q.d.rare.Info("queue of handler has drained", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name)
	}
	return true
}

// abandon drops the spilled deliveries of lanes that are not the queue's any more. The caller holds mu.
func (q *queue) abandon() {
	for p, sh := range q.shelves {
		spots, taken := sh.spots, sh.taken
		sh.spots, sh.taken, sh.lasts = nil, 0, lasts{}
		q.unline(sh)
		for i, s := range spots {
			if q.lanes[s.lane.id] != s.lane {
				continue
			}
			if sh.append(s); i < taken {
				sh.taken++
			}
		}
		if len(sh.spots) == 0 {
			delete(q.shelves, p)
		}
		q.line(sh)
	}
}

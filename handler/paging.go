package handler

import "github.com/lapwing-monitoring/lapwing/delivery"

// This file has the spilled deliveries of a queue: where each is, and in which order they are read back.

// spot is the place of a spilled delivery.
type spot struct {
	lane  *lane
	pos   position
	class delivery.Class
	size  int
}

// shelf has the spilled deliveries of a pair, in their order.
type shelf struct {
	pair    pair
	spots   []spot
	first   uint64 // number of the first spot
	lasts   lasts
	class   delivery.Class // whose line it is in,
	waiting bool           // if it is in one
	taken   int            // so many of the first are being read
}

// shelve notes a spilled delivery. The caller holds mu.
func (q *queue) shelve(p pair, s spot) {
	sh := q.shelves[p]
	if sh == nil {
		sh = &shelf{pair: p, first: 1}
		q.shelves[p] = sh
	}
	sh.append(s)
	s.lane.spilled++
	q.spilled++
	q.line(sh, s.class)
}

func (sh *shelf) append(s spot) {
	sh.lasts[s.class] = sh.first + uint64(len(sh.spots))
	sh.spots = append(sh.spots, s)
}

// line puts a shelf into the line of a class, unless it is in that of a higher one. Its place in a lower one is void.
func (q *queue) line(sh *shelf, c delivery.Class) {
	if !sh.waiting || c < sh.class {
		sh.class, sh.waiting = c, true
		q.lines[c] = append(q.lines[c], sh)
	}
}

// relined puts a shelf whose first deliveries were taken behind the others of its class. The caller holds mu.
func (q *queue) relined(sh *shelf) {
	if len(sh.spots) > sh.taken {
		q.line(sh, sh.lasts.class(sh.first+uint64(sh.taken)))
	}
}

// lined reports whether a class has a shelf, and removes void places. The caller holds mu.
func (q *queue) lined(c delivery.Class) bool {
	for len(q.lines[c]) > 0 {
		if sh := q.lines[c][0]; sh.waiting && sh.class == c {
			return true
		}
		q.lines[c] = q.lines[c][1:]
	}
	return false
}

// pageDue reports whether spilled deliveries should be read back. The caller holds mu.
func (q *queue) pageDue() bool {
	if q.spilled == 0 || q.paging || q.parked >= q.d.opts.ParkSize {
		return false
	}
	return q.count <= q.d.opts.QueueSize/2 && q.bytes <= q.d.opts.QueueBytes/2 ||
		q.lined(delivery.Change) && q.changes <= q.d.opts.QueueSize/2 && q.changeBytes <= q.d.opts.QueueBytes/2
}

// plan takes spots for a page: one of each shelf in turns, of the higher classes first, until memory is full. For the
// shelves of state changes it is the reserve that must not be full. The caller holds mu.
func (q *queue) plan() (plan []spot, shelves []*shelf) {
	count, bytes, changes, changeBytes := q.count, q.bytes, q.changes, q.changeBytes
	room := func(c delivery.Class) bool {
		if !q.lined(c) {
			return false
		}
		sh := q.lines[c][0]
		n, size := count, bytes
		if c == delivery.Change {
			n, size = changes, changeBytes
		}
		return count == 0 || n < q.d.opts.QueueSize && size+sh.spots[sh.taken].size <= q.d.opts.QueueBytes
	}
	for {
		c, ok := q.pages.next(room)
		if !ok {
			return plan, shelves
		}
		sh := q.lines[c][0]
		s := sh.spots[sh.taken]
		q.pages.turns++
		q.lines[c] = q.lines[c][1:]
		sh.waiting = false
		if sh.taken == 0 {
			shelves = append(shelves, sh)
		}
		sh.taken++
		q.relined(sh)
		plan = append(plan, s)
		count++
		bytes += s.size
		if c == delivery.Change {
			changes++
			changeBytes += s.size
		}
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
			q.relined(sh)
		}
		q.d.metrics.storeErrors.Inc()
		q.d.rare.Error("stored deliveries could not be read and will be tried again", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name, "err", err)
		return false
	}
	for _, sh := range shelves {
		for _, s := range sh.spots[:sh.taken] {
			s.lane.spilled--
			q.spilled--
		}
		sh.first += uint64(sh.taken)
		sh.spots, sh.taken = sh.spots[sh.taken:], 0
		if len(sh.spots) == 0 && q.shelves[sh.pair] == sh {
			delete(q.shelves, sh.pair)
		}
	}
	for i, it := range items {
		if it != nil && q.lanes[plan[i].lane.id] == plan[i].lane { // else Disown came first
			q.put(it)
		}
	}
	if q.spilled == 0 {
		q.d.rare.Info("queue of handler has drained", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name)
	}
	return true
}

// abandon drops the spilled deliveries of lanes that are not the queue's any more. The caller holds mu.
func (q *queue) abandon() {
	gone := func(s spot) bool { return q.lanes[s.lane.id] != s.lane }
	for p, sh := range q.shelves {
		spots, taken := sh.spots, sh.taken
		sh.spots, sh.taken, sh.lasts, sh.waiting = nil, 0, lasts{}, false
		for i, s := range spots {
			if gone(s) {
				continue
			}
			if sh.append(s); i < taken {
				sh.taken++
			}
		}
		if len(sh.spots) == 0 {
			delete(q.shelves, p)
		}
	}
	q.lines = [delivery.Classes][]*shelf{}
	for _, sh := range q.shelves {
		q.relined(sh)
	}
}

package handler

// pageDue reports whether spilled deliveries should be read back. The caller holds mu.
func (q *queue) pageDue() bool {
	return q.spilled > 0 && !q.paging &&
		q.count <= q.d.opts.QueueSize/2 && q.bytes <= q.d.opts.QueueBytes/2 && q.parked < q.d.opts.ParkSize
}

// pageIn reads spilled deliveries into memory, some of each lane. It unlocks mu while it reads. False means that it
// failed.
func (q *queue) pageIn() bool {
	var plan []page
	for _, ln := range q.lanes {
		if ln.spilled > 0 {
			plan = append(plan, page{lane: ln, next: ln.next})
		}
	}
	share := max(1, (q.d.opts.QueueSize-q.count)/len(plan))
	for i := range plan {
		plan[i].want = min(plan[i].lane.spilled, share)
	}
	room := q.d.opts.QueueBytes - q.bytes
	q.paging = true
	q.mu.Unlock()
	err := q.d.readPage(q.name, plan, room)
	q.mu.Lock()
	q.paging = false
	if err != nil {
		q.d.metrics.storeErrors.Inc()
		q.d.rare.Error("stored deliveries could not be read and will be tried again", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name, "err", err)
		return false
	}
	for i := range plan {
		if p := &plan[i]; q.lanes[p.lane.id] != p.lane { // Disown came first
			p.items, p.passed = nil, 0
		}
	}
	// In turns, so that no partition waits for the whole page of another.
	for i, more := 0, true; more; i++ {
		more = false
		for _, p := range plan {
			if i < len(p.items) {
				q.put(p.items[i])
				more = true
			}
		}
	}
	for _, p := range plan {
		p.lane.next = p.next
		p.lane.spilled -= p.passed
		q.spilled -= p.passed
	}
	if q.spilled == 0 {
		q.d.rare.Info("queue of handler has drained", q.name.String(),
			"namespace", q.name.Namespace, "handler", q.name.Name)
	}
	return true
}

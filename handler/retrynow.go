package handler

import (
	"slices"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// RetryNow makes the deliveries of a handler due that wait here for their next attempt because one has failed, and
// returns their number. Other deliveries keep their times, and those of a check their order. An attempt that fails counts
// as any other.
func (d *Dispatcher) RetryNow(namespace, handler string) int {
	d.mu.RLock()
	q := d.queues[resource.Name{Namespace: namespace, Name: handler}]
	d.mu.RUnlock()
	if q == nil {
		return 0
	}
	return q.retryNow()
}

// HandlerDeleted ends the deliveries of a deleted handler that wait here for their next attempt, as RetryNow makes them due. It
// does not wait for them.
func (d *Dispatcher) HandlerDeleted(namespace, handler string) {
	if !d.lifecycle.TryLock() {
		return // it starts or stops
	}
	defer d.lifecycle.Unlock()
	if _, again := d.lookup(namespace, handler); d.started && !d.stopped && !again {
		d.watching.Go(func() { d.RetryNow(namespace, handler) })
	}
}

// retryNow does what onTimer does, earlier. It walks over all that waits, as onTimer may: users ask for it seldom. The
// stored progress keeps its time, which counts after a crash only. Deletions of handlers ask for it, too.
func (q *queue) retryNow() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.d.running.Load() {
		return 0
	}
	var due []*chain
	for _, c := range q.waits {
		if c.head.attempts > 0 {
			due = append(due, c)
		}
	}
	slices.SortStableFunc(due, func(a, b *chain) int { return a.due.Compare(b.due) })
	for _, c := range due {
		q.unwait(c)
		q.turn(c)
	}
	n = len(due)
	for _, g := range q.groupWaits.soonest(len(q.groupWaits)) {
		failed := 0
		for _, m := range g.members {
			if g.tries(m) > 0 {
				failed++
			}
		}
		if failed > 0 {
			q.seal(g)
			n += failed
		}
	}
	if n > 0 {
		q.wake()
	}
	return n
}

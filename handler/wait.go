package handler

import (
	"container/heap"
	"time"
)

// waitHeap has the chains that wait for a time, the earliest first.
type waitHeap []*chain

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *waitHeap) Push(x any) {
	c := x.(*chain)
	*h = append(*h, c)
	c.index = len(*h)
}

// Pop implements heap.Interface.
func (h *waitHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	c.index = 0
	return c
}

// wait makes a detached chain wait. It occupies no worker, and its events move to Pebble, so that they take no room.
// The caller holds mu.
func (q *queue) wait(c *chain, due time.Time, resolving bool) {
	c.due, c.resolving = due, resolving
	heap.Push(&q.waits, c)
	if c.retries = c.head.attempts > 0; c.retries {
		q.retries++
	}
	for it := c.head; it != nil; it = it.next {
		q.park(it)
	}
	if c.index == 1 {
		q.arm(due)
	}
}

// unwait removes a chain from waits. The caller holds mu.
func (q *queue) unwait(c *chain) {
	heap.Remove(&q.waits, c.index-1)
	if c.retries {
		q.retries--
	}
	c.resolving, c.retries = false, false
}

// arm sets the timer, unless it fires earlier anyway. The caller holds mu.
func (q *queue) arm(at time.Time) {
	wait := max(0, time.Until(at))
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.onTimer)
		q.armed = at
		return
	}
	if now := time.Now(); q.armed.After(now) && q.armed.Before(at) {
		return // onTimer will arm it again
	}
	q.armed = at
	q.timer.Reset(wait)
}

// onTimer hands due chains to the workers, seals due groups, and arms the timer again.
func (q *queue) onTimer() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.d.running.Load() {
		return
	}
	now := time.Now()
	for len(q.waits) > 0 && !q.waits[0].due.After(now) {
		c := q.waits[0]
		q.unwait(c)
		q.turn(c)
	}
	q.armed = time.Time{}
	for _, g := range q.groups {
		if g.due.After(now) {
			q.arm(g.due)
			continue
		}
		q.seal(g)
	}
	late := q.late
	q.late = nil
	for _, g := range late {
		if g.due.After(now) {
			q.late = append(q.late, g)
			q.arm(g.due)
			continue
		}
		q.sealed = append(q.sealed, g)
	}
	if len(q.waits) > 0 {
		q.arm(q.waits[0].due)
	}
	if q.isReady() || q.leaving.head != nil || len(q.sealed) > 0 || q.spilled.sum() > 0 {
		q.wake()
	}
}

// disarm stops the timer, for Stop.
func (q *queue) disarm() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
	}
}

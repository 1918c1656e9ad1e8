package handler

import (
	"container/heap"
	"slices"
	"time"
)

// slot is the place of a chain or a group in the heap of those that wait for a time.
type slot struct {
	due   time.Time // waits until then
	index int       // in its heap, from 1; 0 if it is not there
}

func (s *slot) place() *slot { return s }

// dueHeap has what waits for a time, the earliest first.
type dueHeap[T interface{ place() *slot }] []T

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].place().due.Before(h[j].place().due) }
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place().index, h[j].place().index = i+1, j+1
}

// Push implements heap.Interface.
func (h *dueHeap[T]) Push(x any) {
	e := x.(T)
	*h = append(*h, e)
	e.place().index = len(*h)
}

// Pop implements heap.Interface.
func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	e.place().index = 0
	return e
}

// first returns the time of the first one; zero if there is none.
func (h dueHeap[T]) first() (due time.Time) {
	if len(h) > 0 {
		due = h[0].place().due
	}
	return due
}

// soonest returns up to limit of those that wait the shortest, in the order of their times.
func (h dueHeap[T]) soonest(limit int) (first []T) {
	var next []int // the indexes of those that may follow: children of the first ones
	add := func(i int) {
		if i >= len(h) {
			return
		}
		at, _ := slices.BinarySearchFunc(next, h[i].place().due, func(j int, due time.Time) int {
			return h[j].place().due.Compare(due)
		})
		next = slices.Insert(next, at, i)
	}
	for add(0); len(next) > 0 && len(first) < limit; {
		i := next[0]
		next = next[1:]
		first = append(first, h[i])
		add(2*i + 1)
		add(2*i + 2)
	}
	return first
}

// wait makes a detached chain wait. It occupies no worker, and its events move to Pebble, so that they take no room.
// The caller holds mu.
func (q *queue) wait(c *chain, due time.Time, resolving bool) {
	c.due, c.resolving = due, resolving
	heap.Push(&q.waits, c)
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
	c.resolving = false
}

// waitGroup makes a group wait until its time. The caller holds mu.
func (q *queue) waitGroup(g *group, due time.Time) {
	g.slot.due = due
	heap.Push(&q.groupWaits, g)
	if g.index == 1 {
		q.arm(due)
	}
}

// unwaitGroup removes a group from groupWaits. The caller holds mu.
func (q *queue) unwaitGroup(g *group) {
	heap.Remove(&q.groupWaits, g.index-1)
	if !g.closed { // the group that now has the key of a closed one is another one
		delete(q.groups, g.key)
	}
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

// onTimer hands due chains and groups to the workers, and arms the timer again.
func (q *queue) onTimer() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.d.running.Load() {
		return
	}
	now := time.Now()
	for len(q.waits) > 0 && !q.waits.first().After(now) {
		c := q.waits[0]
		q.unwait(c)
		q.turn(c)
	}
	for len(q.groupWaits) > 0 && !q.groupWaits.first().After(now) {
		q.seal(q.groupWaits[0])
	}
	q.armed = time.Time{}
	if len(q.groupWaits) > 0 {
		q.arm(q.groupWaits.first())
	}
	if len(q.waits) > 0 {
		q.arm(q.waits.first())
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

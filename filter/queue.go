package filter

import (
	"sync"
	"sync/atomic"
)

// maxWaiting bounds the waiting questions of one namespace in one lane.
const maxWaiting = 1000

// queue holds the questions of one lane until a worker takes them. The namespaces take turns, so that a namespace with
// many or slow questions delays mainly its own.
type queue struct {
	// each bounds the questions of one namespace that workers have at the same time; zero means no bound.
	each int
	busy atomic.Bool // questions wait

	mu    sync.Mutex // guards the fields below
	lines map[string]*line
	turns []*line // lines in which questions wait, the next to be served first
	idle  []*slot // slots that wait for a question
}

// line is the questions of one namespace.
type line struct {
	namespace string
	waiting   []*asked
	running   int // questions that workers have; counted only if the queue has a bound
}

func newQueue(each int) *queue { return &queue{each: each, lines: map[string]*line{}} }

// put adds a question, and reports false if too many of its namespace wait already.
func (q *queue) put(a *asked) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[a.namespace]
	if l == nil {
		l = &line{namespace: a.namespace}
		q.lines[a.namespace] = l
	}
	if len(l.waiting) >= maxWaiting {
		return false
	}
	a.taken = false
	if l.waiting = append(l.waiting, a); len(l.waiting) == 1 {
		q.turns = append(q.turns, l)
	}
	q.busy.Store(true) // before dispatch looks at the slots: a caller that leaves a slot checks it afterwards
	q.dispatch()
	return true
}

// remove takes back a question that no worker has. It reports false if a worker has it.
func (q *queue) remove(a *asked) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.taken {
		return false
	}
	l := q.lines[a.namespace]
	for i, w := range l.waiting {
		if w == a {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			break
		}
	}
	if len(l.waiting) == 0 {
		for i, t := range q.turns {
			if t == l {
				q.turns = append(q.turns[:i], q.turns[i+1:]...)
				break
			}
		}
		q.drop(l)
		q.busy.Store(len(q.turns) > 0)
	}
	return true
}

// take returns the next question, or nil. After nil the slot gets the next question by its channel, unless it leaves.
func (q *queue) take(s *slot) *asked {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.next()
	if a == nil {
		q.idle = append(q.idle, s)
	}
	return a
}

// leave ends a slot's wait. It returns the question that came at the last moment, or nil.
func (q *queue) leave(s *slot) *asked {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.idle {
		if other == s {
			q.idle = append(q.idle[:i], q.idle[i+1:]...)
			return nil
		}
	}
	return <-s.work // dispatch has removed the slot from the list and put the question there
}

// more returns another question for a worker that takes several, or nil.
func (q *queue) more() *asked {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next()
}

// done notes that a worker's question is answered.
func (q *queue) done(a *asked) {
	if q.each == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[a.namespace]
	l.running--
	q.drop(l)
	q.dispatch()
}

// dispatch hands questions to slots that wait for them. The caller holds mu.
func (q *queue) dispatch() {
	for i := len(q.idle) - 1; i >= 0; i-- { // the last slot to work most likely has a process
		s := q.idle[i]
		if s.lent.Load() {
			continue
		}
		a := q.next()
		if a == nil {
			break
		}
		q.idle = append(q.idle[:i], q.idle[i+1:]...)
		s.work <- a // it has room for one, and the slot was idle
	}
	q.busy.Store(len(q.turns) > 0)
}

// back hands out waiting questions after a caller has used a slot.
func (q *queue) back() {
	if !q.busy.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch()
}

// next takes the first question of the next namespace that may have another one running. The caller holds mu.
func (q *queue) next() *asked {
	for i, l := range q.turns {
		if q.each > 0 && l.running >= q.each {
			continue
		}
		a := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		q.turns = append(q.turns[:i], q.turns[i+1:]...)
		if len(l.waiting) > 0 {
			q.turns = append(q.turns, l)
		}
		a.taken = true
		if q.each > 0 {
			l.running++
		}
		q.drop(l)
		q.busy.Store(len(q.turns) > 0)
		return a
	}
	return nil
}

// drop forgets an unused line. The caller holds mu.
func (q *queue) drop(l *line) {
	if len(l.waiting) == 0 && l.running == 0 {
		delete(q.lines, l.namespace)
	}
}

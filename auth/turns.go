package auth

import (
	"context"
	"slices"
	"sync"
)

// maxQueue bounds the waiting comparisons of each kind: at two CPUs and 50 ms each, the last one waits some 6 s.
const maxQueue = 128

// turns shares the CPUs that compute slow hashes. Callers at addresses where they were right before go first. All
// others take turns by address, so that an address with many guesses delays only itself. When the queue is full, the
// address with the most places gives one up to an address with fewer.
type turns struct {
	mu        sync.Mutex // guards the fields below
	free      int
	trusted   []*waiter
	others    map[string][]*waiter // by address
	order     []string             // the addresses in others, in the order of their turns
	strangers int                  // waiters in others
}

// waiter waits for a turn.
type waiter struct {
	address string
	trusted bool
	ready   chan struct{} // closed when err is decided
	err     error
}

func newTurns(atOnce int) *turns {
	return &turns{free: atOnce, others: map[string][]*waiter{}}
}

// take waits for a turn. It fails with ErrBusy if the queue is full, or with the context's error.
func (t *turns) take(ctx context.Context, address string, trusted bool) (release func(), err error) {
	w := &waiter{address: address, trusted: trusted, ready: make(chan struct{})}
	if err := t.enter(w); err != nil {
		return nil, err
	}
	select {
	case <-w.ready:
		return t.release, w.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	left := t.leave(w)
	t.mu.Unlock()
	if !left && w.err == nil { // its turn came at the same moment
		t.release()
	}
	return nil, ctx.Err()
}

// enter gives w a free turn or a place in the queue.
func (t *turns) enter(w *waiter) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.free > 0:
		t.free--
		close(w.ready)
		return nil
	case w.trusted:
		if len(t.trusted) >= maxQueue {
			return ErrBusy
		}
		t.trusted = append(t.trusted, w)
		return nil
	case t.strangers >= maxQueue && !t.makeRoom(w.address):
		return ErrBusy
	}
	if len(t.others[w.address]) == 0 {
		t.order = append(t.order, w.address)
	}
	t.others[w.address] = append(t.others[w.address], w)
	t.strangers++
	return nil
}

// makeRoom takes a place from the address with the most of them, unless address would then have as many.
func (t *turns) makeRoom(address string) bool {
	most := address
	for other, waiting := range t.others {
		if len(waiting) > len(t.others[most]) {
			most = other
		}
	}
	waiting := t.others[most]
	if len(waiting) < len(t.others[address])+2 {
		return false
	}
	last := waiting[len(waiting)-1]
	t.leave(last)
	last.err = ErrBusy
	close(last.ready)
	return true
}

// leave removes w from the queue; false if it is not there.
func (t *turns) leave(w *waiter) bool {
	if w.trusted {
		at := slices.Index(t.trusted, w)
		if at < 0 {
			return false
		}
		t.trusted = slices.Delete(t.trusted, at, at+1)
		return true
	}
	waiting := t.others[w.address]
	at := slices.Index(waiting, w)
	if at < 0 {
		return false
	}
	t.strangers--
	if waiting = slices.Delete(waiting, at, at+1); len(waiting) > 0 {
		t.others[w.address] = waiting
		return true
	}
	delete(t.others, w.address)
	at = slices.Index(t.order, w.address)
	t.order = slices.Delete(t.order, at, at+1)
	return true
}

// release ends a turn and gives it to the next waiter.
func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var next *waiter
	switch {
	case len(t.trusted) > 0:
		next = t.trusted[0]
	case len(t.order) > 0:
		address := t.order[0]
		next = t.others[address][0]
		t.order = append(slices.Delete(t.order, 0, 1), address) // behind the others
	default:
		t.free++
		return
	}
	t.leave(next)
	close(next.ready)
}

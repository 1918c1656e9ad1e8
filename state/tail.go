package state

import (
	"sync"
	"sync/atomic"
)

// Update reports that the newest event of a check changed or was deleted. It has no event: the receiver reads the
// event, and if it falls behind it sees only the newest of several.
type Update struct {
	Namespace, Entity, Check string
	Deleted                  bool
	// Repeats says that the event is as the one before in status, flapping and silencing.
	Repeats bool
}

// Tail is a live feed of updates.
type Tail struct {
	// C receives the updates. It is closed when the tail is closed, or when its reader was too slow.
	C <-chan Update

	c        chan Update
	set      *tailSet
	closed   bool // guarded by set.mu
	overflow atomic.Bool
}

// Overflowed reports whether the tail was closed because its buffer was full.
func (t *Tail) Overflowed() bool { return t.overflow.Load() }

// Close ends the tail.
func (t *Tail) Close() {
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	t.set.remove(t)
}

type tailSet struct {
	n     atomic.Int32 // saves the fold the lock while there are no live feeds
	mu    sync.Mutex   // guards tails and the closing of their channels
	tails []*Tail
}

// Tails returns the live feeds as a follower for package fold. They get the events of all backends.
func (s *State) Tails() *Tails { return &Tails{&s.tails} }

// Tails passes changes to the live feeds.
type Tails struct{ set *tailSet }

// Name is the follower's name.
func (t *Tails) Name() string { return "tails" }

// Follow notifies the live feeds of a change. A feed that is full is closed, so that the fold never waits.
func (t *Tails) Follow(a *Applied) {
	if !a.Stateless {
		t.set.notify(Update{Namespace: a.Namespace, Entity: a.Entity, Check: a.Check, Deleted: a.Deleted, Repeats: !a.Deleted && a.Repeats()})
	}
}

// Tail opens a live feed that may fall behind by buffer updates.
func (s *State) Tail(buffer int) *Tail {
	c := make(chan Update, max(buffer, 1))
	t := &Tail{C: c, c: c, set: &s.tails}
	s.tails.mu.Lock()
	defer s.tails.mu.Unlock()
	s.tails.tails = append(s.tails.tails, t)
	s.tails.n.Add(1)
	return t
}

// Watched reports whether there are live feeds.
func (s *State) Watched() bool { return s.tails.n.Load() > 0 }

// Announce notifies the live feeds of events that look different without a newer event.
func (s *State) Announce(page *Page) {
	for k := range page.Keys() {
		s.tails.notify(Update{Namespace: k.Namespace, Entity: k.Entity, Check: k.Check})
	}
}

func (ts *tailSet) notify(u Update) {
	if ts.n.Load() == 0 {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for i := 0; i < len(ts.tails); i++ {
		t := ts.tails[i]
		select {
		case t.c <- u:
		default:
			t.overflow.Store(true)
			ts.remove(t)
			i--
		}
	}
}

func (ts *tailSet) remove(t *Tail) {
	if t.closed {
		return
	}
	t.closed = true
	for i, o := range ts.tails {
		if o == t {
			ts.tails = append(ts.tails[:i], ts.tails[i+1:]...)
			break
		}
	}
	close(t.c)
	ts.n.Add(-1)
}

func (ts *tailSet) closeAll() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for len(ts.tails) > 0 {
		ts.remove(ts.tails[0])
	}
}

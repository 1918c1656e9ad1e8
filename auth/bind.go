package auth

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Directories lock a user's account after some wrong passwords, so the number of wrong passwords that lapwing forwards
// must stay below that. Active Directory's usual thresholds are 10 or more in 10 to 30 minutes.
const (
	maxBindGuesses = 1000
	// bindWindow is the time over which wrong passwords of an entry are counted.
	bindWindow = 30 * time.Minute
	// wrongBindLife is how long a wrong password is not asked again. It is short because the user may make it the right
	// one.
	wrongBindLife = 5 * time.Minute
	// maxBindEntries bounds the counted entries. The oldest is dropped.
	maxBindEntries = 16_384
)

// bindGate is called before a directory checks an entry's password. It fails with ErrCredentials for a password known
// to be wrong, or with a GuessingError. The caller must call ended with the directory's answer.
type bindGate func(entry, password string) (ended func(error), err error)

// bindGuesses counts wrong passwords per entry of a directory, before the directory is asked. Each entry has a limit
// over all addresses. A quarter of it is reserved for addresses from which the user signed in before, and one other
// address gets two thirds of the rest: so a guesser neither locks the account nor keeps the user out. One password of
// an entry is checked at a time, and a right one resets the count, as it does in the directory.
type bindGuesses struct {
	key   []byte // for digests
	limit int

	mu      sync.Mutex // guards the fields below
	entries map[digest]*list.Element
	byAge   list.List // of *bindEntry, the least recently asked first
}

// bindQuestion is one check of a password by a directory.
type bindQuestion struct {
	directory, entry, address, password string
	trusted                             bool // the user signed in from this address before
}

type bindEntry struct {
	name  digest
	busy  chan struct{} // closed when the running check is answered; nil if none runs
	wrong []wrongBind
}

type wrongBind struct {
	at                time.Time
	address, password digest
	trusted           bool
}

// begin waits for the entry's other checks and lets this one start.
func (g *bindGuesses) begin(ctx context.Context, now time.Time, b bindQuestion) (*bindEntry, error) {
	for {
		g.mu.Lock()
		e := g.entry(b)
		if e.busy == nil {
			err := g.admit(now, e, b)
			if err == nil {
				e.busy = make(chan struct{})
			}
			g.mu.Unlock()
			return e, err
		}
		busy := e.busy
		g.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// entry returns an entry's count and moves it to the end of byAge. The caller holds mu.
func (g *bindGuesses) entry(b bindQuestion) *bindEntry {
	name := keyedDigest(g.key, b.directory, b.entry)
	if e, ok := g.entries[name]; ok {
		g.byAge.MoveToBack(e)
		return e.Value.(*bindEntry)
	}
	if g.entries == nil {
		g.entries = map[digest]*list.Element{}
	}
	for old := g.byAge.Front(); old != nil && len(g.entries) >= maxBindEntries; old = g.byAge.Front() {
		g.byAge.Remove(old)
		delete(g.entries, old.Value.(*bindEntry).name)
	}
	e := &bindEntry{name: name}
	g.entries[name] = g.byAge.PushBack(e)
	return e
}

// admit reports whether the directory may be asked. The caller holds mu.
func (g *bindGuesses) admit(now time.Time, e *bindEntry, b bindQuestion) error {
	e.wrong = slices.DeleteFunc(e.wrong, func(w wrongBind) bool { return now.Sub(w.at) >= bindWindow })
	address, password := keyedDigest(g.key, b.address), keyedDigest(g.key, b.password)
	var strangers, here []wrongBind
	for _, w := range e.wrong {
		if w.password == password && now.Sub(w.at) < wrongBindLife {
			return ErrCredentials
		}
		if !w.trusted {
			strangers = append(strangers, w)
		}
		if w.address == address {
			here = append(here, w)
		}
	}
	wait := func(wrong []wrongBind, limit int) time.Duration {
		if len(wrong) < limit {
			return 0
		}
		return wrong[len(wrong)-limit].at.Add(bindWindow).Sub(now) // until one guess is free again
	}
	longest := wait(e.wrong, g.limit)
	if !b.trusted {
		forStrangers := g.limit - g.limit/4
		longest = max(longest, wait(strangers, forStrangers), wait(here, (2*forStrangers+2)/3))
	}
	if longest > 0 {
		return guessing(longest)
	}
	return nil
}

// end records the directory's answer. A check without an answer does not count.
func (g *bindGuesses) end(now time.Time, e *bindEntry, b bindQuestion, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(e.busy)
	e.busy = nil
	switch {
	case err == nil:
		e.wrong = nil
	case errors.Is(err, ErrCredentials):
		e.wrong = append(e.wrong, wrongBind{now, keyedDigest(g.key, b.address), keyedDigest(g.key, b.password), b.trusted})
	}
}

package auth

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Directories lock the account of a user after some wrong passwords, so those that people on the network type here must stay
// below that number. Active Directory's usual thresholds are 10 and more in 10 to 30 minutes.
const (
	maxBindGuesses = 1000
	// bindWindow is the time in which wrong passwords of an entry are counted together.
	bindWindow = 30 * time.Minute
	// wrongBindLife is how long a wrong password is not asked again. It is short, for the user may make it the right one.
	wrongBindLife = 5 * time.Minute
	// maxBindEntries bounds the entries that are counted. The oldest one gives way.
	maxBindEntries = 16_384
)

// bindGate is asked before a directory is asked about an entry's password. It fails with ErrCredentials for a password
// that is known to be wrong, or with a GuessingError. ended must be called with the directory's answer.
type bindGate func(entry, password string) (ended func(error), err error)

// bindGuesses counts wrong passwords for each entry of a directory, before the directory is asked. Each entry has a limit
// over all addresses. A quarter of it is kept for addresses from which the user signed in before, and one other address gets
// two thirds of the rest: so a guesser neither locks the account nor keeps the user out. One password of an entry is asked at a
// time, and a right one ends the count, as it does in the directory.
type bindGuesses struct {
	key   []byte // of the digests
	limit int

	mu      sync.Mutex // guards the fields below
	entries map[digest]*list.Element
	byAge   list.List // of *bindEntry; the one that was asked the longest ago is the first
}

// bindQuestion is one question to a directory.
type bindQuestion struct {
	directory, entry, address, password string
	trusted                             bool // the user signed in from this address before
}

type bindEntry struct {
	name  digest
	busy  chan struct{} // closed when the question that is under way is answered; nil if there is none
	wrong []wrongBind
}

type wrongBind struct {
	at                time.Time
	address, password digest
	trusted           bool
}

// begin waits for the answers to the entry's other questions, and lets this one be asked.
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

// entry is the count of an entry, which becomes the youngest. The caller holds mu.
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

// admit says whether the directory may be asked. The caller holds mu.
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
		return wrong[len(wrong)-limit].at.Add(bindWindow).Sub(now) // until one less than the limit is left
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

// end takes the directory's answer. What it did not answer does not count.
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

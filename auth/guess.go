package auth

import (
	"container/list"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Some guesses of passwords are free, then each takes twice as long as the one before, up to the longest wait. There is
// a count for each user at each address, one for each address over all users, and one for each user over all addresses.
// The last two do not delay a user at an address where that user was right before, and the last lets every address try
// once: guesses from elsewhere must not keep a user out.
const (
	freeFromOne, waitFromOne         = 5, 5 * time.Minute
	freeFromAddress, waitFromAddress = 50, time.Minute
	freeFromAll, waitFromAll         = 100, 10 * time.Second
	// waitFromTrusted replaces waitFromOne where the user was right before.
	waitFromTrusted = 10 * time.Second
	// waitForPending is the wait while all free guesses are being compared.
	waitForPending = time.Second
	// forgetGuesses is the time after the last wrong password until a count is reset.
	forgetGuesses = time.Hour
	// maxGuessers bounds the counts. The oldest is dropped.
	maxGuessers = 65_536
)

// GuessingError says that there were too many wrong passwords, and how long to wait for the next try.
type GuessingError struct{ Wait time.Duration }

func (e *GuessingError) Error() string {
	return fmt.Sprintf("too many wrong passwords, try again in %d s", int(e.Wait/time.Second))
}

// guessing is a GuessingError in whole seconds.
func guessing(wait time.Duration) error {
	return &GuessingError{Wait: (wait + time.Second - 1).Truncate(time.Second)}
}

// guesses counts wrong passwords that were compared. A known password, right or wrong, is answered from memory and does
// not count: a fleet with the wrong password makes one guess.
type guesses struct {
	key []byte // for the digests of users and addresses, whose length the sender chooses

	mu      sync.Mutex // guards the fields below
	count   map[guesser]*list.Element
	byAge   list.List       // of *guessed, the least recently wrong first
	pending map[guesser]int // comparisons under way
}

// guesser identifies a user at an address, a user (with "" as the address), or an address (with "" as the user).
type guesser [16]byte

type guessed struct {
	who  guesser
	n    int
	last time.Time
}

func (g *guesses) guesser(user, address string) (who guesser) {
	d := keyedDigest(g.key, user, address)
	copy(who[:], d[:])
	return who
}

// admit allows a comparison or fails with a GuessingError. After success the caller must call judged. trusted says that
// the user was right before from this address.
func (g *guesses) admit(now time.Time, user, address string, trusted bool) error {
	one, host, all := g.guesser(user, address), g.guesser("", address), g.guesser(user, "")
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := g.wait(now, one, freeFromOne, waitFromOne)
	n := g.of(now, one) + g.pending[one]
	switch {
	case trusted:
		wait = g.wait(now, one, freeFromOne, waitFromTrusted)
	case address == "" || n > 0:
		wait = max(wait, g.wait(now, all, freeFromAll, waitFromAll))
	}
	if address == "" { // without an address, right callers must not wait for wrong ones
		wait = g.wait(now, all, freeFromAll, waitFromAll)
	} else {
		if !trusted {
			wait = max(wait, g.wait(now, host, freeFromAddress, waitFromAddress))
		}
		if g.pending[one] > 0 && n > freeFromOne {
			wait = max(wait, waitForPending)
		}
	}
	if wait > 0 {
		return guessing(wait)
	}
	if g.pending == nil {
		g.pending = map[guesser]int{}
	}
	g.pending[one]++
	return nil
}

// judged ends a comparison and reports whether it counted a wrong guess. right is nil if nothing was compared.
func (g *guesses) judged(now time.Time, user, address string, right *bool) (counted bool) {
	one := g.guesser(user, address)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending[one]--; g.pending[one] <= 0 {
		delete(g.pending, one)
	}
	switch {
	case right == nil:
	case *right:
		g.forget(one)
	default:
		g.add(now, g.guesser(user, ""), 1)
		if address != "" {
			g.add(now, one, 1)
			g.add(now, g.guesser("", address), 1)
		}
		return true
	}
	return false
}

// forgive removes the guesses of a user at an address because a directory knows the password. If this sign-in counted a
// wrong guess, it takes one off each other count. It must not take off more: a user of the directory could erase the
// guesses of its address.
func (g *guesses) forgive(now time.Time, user, address string, counted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(g.guesser(user, address))
	if !counted {
		return
	}
	g.add(now, g.guesser(user, ""), -1)
	g.add(now, g.guesser("", address), -1)
}

// of returns how many guesses count.
func (g *guesses) of(now time.Time, who guesser) int {
	if e, ok := g.count[who]; ok {
		if c := e.Value.(*guessed); now.Sub(c.last) < forgetGuesses {
			return c.n
		}
	}
	return 0
}

func (g *guesses) wait(now time.Time, who guesser, free int, longest time.Duration) time.Duration {
	n := g.of(now, who)
	if n <= free {
		return 0
	}
	wait := longest
	if doublings := n - free - 1; doublings < 20 {
		wait = min(longest, time.Second<<doublings)
	}
	return g.count[who].Value.(*guessed).last.Add(wait).Sub(now)
}

// add changes a count by n. A negative n does not make the count younger.
func (g *guesses) add(now time.Time, who guesser, n int) {
	e, known := g.count[who]
	if n < 0 {
		if known {
			c := e.Value.(*guessed)
			c.n = max(0, c.n+n)
		}
		return
	}
	if !known {
		if g.count == nil {
			g.count = map[guesser]*list.Element{}
		}
		if len(g.count) >= maxGuessers {
			g.forget(g.byAge.Front().Value.(*guessed).who)
		}
		e = g.byAge.PushBack(&guessed{who: who})
		g.count[who] = e
	}
	c := e.Value.(*guessed)
	if now.Sub(c.last) >= forgetGuesses {
		c.n = 0
	}
	c.n, c.last = c.n+n, now
	g.byAge.MoveToBack(e)
}

func (g *guesses) forget(who guesser) {
	if e, ok := g.count[who]; ok {
		g.byAge.Remove(e)
		delete(g.count, who)
	}
}

// network returns the part of a client's address that is counted: an IPv6 host can choose from a whole /64.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if prefix, err := ip.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return ip.String()
}

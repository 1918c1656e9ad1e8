package auth

import (
	"fmt"
	"sync"
	"time"
)

// How passwords may be guessed: so many for nothing, then each takes twice as long as the one before. There is a count for
// each user at each address, and one for each user from wherever. The latter is patient, so that nobody is kept out for long
// because others guess.
const (
	freeFromOne, waitFromOne = 5, 5 * time.Minute
	freeFromAll, waitFromAll = 100, 10 * time.Second
	// forgetGuesses is how long after the last wrong password a count begins anew.
	forgetGuesses = time.Hour
	// maxGuessers bounds the counts that are kept.
	maxGuessers = 65_536
)

// GuessingError says that there were too many wrong passwords, and after how long another one is looked at.
type GuessingError struct{ Wait time.Duration }

func (e *GuessingError) Error() string {
	return fmt.Sprintf("too many wrong passwords, try again in %d s", int(e.Wait/time.Second))
}

// guesses counts the passwords that were compared and not right. A password that is known, be it right or wrong, is answered
// from memory and counts for nothing: a fleet that has the wrong password makes one guess.
type guesses struct {
	mu    sync.Mutex // guards count
	count map[guesser]guessed
}

// guesser is a user's name at an address, or from all addresses together: "*".
type guesser struct{ user, address string }

const allAddresses = "*"

type guessed struct {
	n    int
	last time.Time
}

// admit lets a password be compared and counts it as wrong until forgive is called, or fails with a GuessingError.
func (g *guesses) admit(now time.Time, user, address string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	one, all := guesser{user, address}, guesser{user, allAddresses}
	wait := max(g.wait(now, one, freeFromOne, waitFromOne), g.wait(now, all, freeFromAll, waitFromAll))
	if address == "" { // not known: those who are right must not suffer for those who are not
		wait = g.wait(now, all, freeFromAll, waitFromAll)
	}
	if wait > 0 {
		return &GuessingError{Wait: (wait + time.Second - 1).Truncate(time.Second)}
	}
	if address != "" {
		g.add(now, one)
	}
	g.add(now, all)
	return nil
}

// forgive takes back that a password was counted, because it is right.
func (g *guesses) forgive(user, address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.count, guesser{user, address})
	all := guesser{user, allAddresses}
	if c, ok := g.count[all]; ok && c.n > 0 {
		c.n--
		g.count[all] = c
	}
}

func (g *guesses) wait(now time.Time, who guesser, free int, longest time.Duration) time.Duration {
	c := g.count[who]
	if c.n <= free || now.Sub(c.last) >= forgetGuesses {
		return 0
	}
	wait := longest
	if doublings := c.n - free - 1; doublings < 20 {
		wait = min(longest, time.Second<<doublings)
	}
	return c.last.Add(wait).Sub(now)
}

func (g *guesses) add(now time.Time, who guesser) {
	c, known := g.count[who]
	if now.Sub(c.last) >= forgetGuesses {
		c.n = 0
	}
	if g.count == nil {
		g.count = map[guesser]guessed{}
	}
	if !known {
		for old := range g.count {
			if len(g.count) < maxGuessers {
				break
			}
			delete(g.count, old)
		}
	}
	g.count[who] = guessed{n: c.n + 1, last: now}
}

package auth

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// attempt signs in and returns the result: "right", "wrong", or how long to wait.
func attempt(t *testing.T, a *Auth, address, user, password string) string {
	t.Helper()
	_, err := a.PasswordFrom(t.Context(), address, user, password)
	var guessing *GuessingError
	switch {
	case err == nil:
		return "right"
	case errors.As(err, &guessing):
		return guessing.Wait.String()
	case errors.Is(err, ErrCredentials):
		return "wrong"
	}
	t.Fatal(err)
	return ""
}

func TestGuessing(t *testing.T) {
	a, c := seeded(t)
	guess := 0
	wrong := func(address, user, want string) {
		t.Helper()
		guess++
		if got := attempt(t, a, address, user, fmt.Sprint("guess ", guess)); got != want {
			t.Fatalf("guess %d: %s, want %s", guess, got, want)
		}
	}
	for range freeFromOne + 1 {
		wrong("10.0.0.1", "admin", "wrong")
	}
	wrong("10.0.0.1", "admin", "1s")
	wrong("10.0.0.1", "admin", "1s") // a refused guess does not count
	if got := attempt(t, a, "10.0.0.1", "admin", agentPassword); got != "1s" {
		t.Errorf("the right password in the same second: %s", got)
	}
	wrong("10.0.0.2", "admin", "wrong") // other addresses are not affected
	wrong("10.0.0.1", "agent", "wrong")
	c.advance(time.Second)
	wrong("10.0.0.1", "admin", "wrong")
	wrong("10.0.0.1", "admin", "2s")
	c.advance(time.Second)
	wrong("10.0.0.1", "admin", "1s")
	for want := 2 * time.Second; want < waitFromOne; want *= 2 {
		c.advance(want)
		wrong("10.0.0.1", "admin", "wrong")
	}
	wrong("10.0.0.1", "admin", waitFromOne.String())

	// A client with the right password is accepted elsewhere, and from then on everywhere: the password is known.
	if got := attempt(t, a, "10.0.0.3", "admin", agentPassword); got != "right" {
		t.Errorf("elsewhere: %s", got)
	}
	if got := attempt(t, a, "10.0.0.1", "admin", agentPassword); got != "right" {
		t.Errorf("a known password: %s", got)
	}
	wrong("10.0.0.1", "admin", waitFromTrusted.String()) // guesses at that address wait less
	c.advance(forgetGuesses)
	for range freeFromOne + 1 {
		wrong("10.0.0.1", "admin", "wrong")
	}
	wrong("10.0.0.1", "admin", "1s")
}

func TestGuessingNobody(t *testing.T) {
	a, _ := seeded(t)
	for i := range freeFromOne + 1 {
		if got := attempt(t, a, "10.0.0.1", "nobody", fmt.Sprint(i)); got != "wrong" {
			t.Fatalf("guess %d: %s", i, got)
		}
	}
	if got := attempt(t, a, "10.0.0.1", "nobody", "more"); got != "1s" {
		t.Errorf("%s: whether there is such a user can be told from it", got)
	}
}

// TestOneWrongPasswordIsOneGuess has a fleet with an old password. It must not lock out agents with the new one.
func TestOneWrongPasswordIsOneGuess(t *testing.T) {
	a, _ := seeded(t)
	for range 10 * freeFromAll {
		if got := attempt(t, a, "", "agent", "an old one"); got != "wrong" {
			t.Fatalf("the same wrong password again: %s", got)
		}
	}
	if got := attempt(t, a, "", "agent", agentPassword); got != "right" {
		t.Errorf("the right one: %s", got)
	}
}

func TestGuessingFromEverywhere(t *testing.T) {
	a, c := seeded(t)
	for i := range freeFromAll + 1 {
		if got := attempt(t, a, fmt.Sprint("10.0.1.", i), "admin", fmt.Sprint(i)); got != "wrong" {
			t.Fatalf("guess %d: %s", i, got)
		}
	}
	// Each address may try once, so that guesses from elsewhere lock out no user. Then it waits.
	for i := range 20 {
		host := fmt.Sprint("10.0.2.", i)
		if got := attempt(t, a, host, "admin", fmt.Sprint("first ", i)); got != "wrong" {
			t.Errorf("first guess of %s: %s", host, got)
		}
		if got := attempt(t, a, host, "admin", fmt.Sprint("second ", i)); got == "wrong" {
			t.Errorf("second guess of %s was looked at", host)
		}
	}
	for range 5 {
		c.advance(waitFromAll)
		if got := attempt(t, a, "10.0.2.1", "admin", fmt.Sprint("late ", c.Load())); got != "wrong" {
			t.Fatalf("after the longest wait: %s", got)
		}
	}
	if got := attempt(t, a, "10.0.3.1", "admin", agentPassword); got != "right" {
		t.Errorf("the right password from elsewhere: %s", got)
	}
}

func TestGuessersAreBounded(t *testing.T) {
	g := guesses{key: randomKey()}
	now := time.Unix(1_700_000_000, 0)
	wrong := func(user string) {
		t.Helper()
		if err := g.admit(now, user, "", false); err != nil {
			t.Fatal(err)
		}
		g.judged(now, user, "", new(bool))
	}
	wrong("first")
	wrong("second")
	for i := range maxGuessers - 1 {
		wrong(fmt.Sprint("user", i))
	}
	if len(g.count) != maxGuessers || g.byAge.Len() != maxGuessers || len(g.pending) != 0 {
		t.Errorf("%d counts are kept, %d in order, %d pending", len(g.count), g.byAge.Len(), len(g.pending))
	}
	if g.of(now, g.guesser("first", "")) != 0 || g.of(now, g.guesser("second", "")) != 1 {
		t.Error("the oldest count did not give way")
	}
}

package auth

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// attempt is a sign-in, and what came of it: "right", "wrong", or how long to wait.
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
	wrong("10.0.0.1", "admin", "1s") // what was not looked at does not count
	if got := attempt(t, a, "10.0.0.1", "admin", agentPassword); got != "1s" {
		t.Errorf("the right password in the same second: %s", got)
	}
	wrong("10.0.0.2", "admin", "wrong") // others are not to blame
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

	// Who knows the password is let in elsewhere, and from then on everywhere: it is known.
	if got := attempt(t, a, "10.0.0.3", "admin", agentPassword); got != "right" {
		t.Errorf("elsewhere: %s", got)
	}
	if got := attempt(t, a, "10.0.0.1", "admin", agentPassword); got != "right" {
		t.Errorf("a known password: %s", got)
	}
	wrong("10.0.0.1", "admin", waitFromOne.String())
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

// TestOneWrongPasswordIsOneGuess is a fleet with an old password: it must not keep those out who have the new one.
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
	if got := attempt(t, a, "10.0.2.1", "admin", "more"); got != "1s" {
		t.Errorf("%s, want to wait 1s", got)
	}
	for range 50 {
		c.advance(waitFromAll)
		if got := attempt(t, a, fmt.Sprint("10.0.3.", c.Load()), "admin", fmt.Sprint("late ", c.Load())); got != "wrong" {
			t.Fatalf("after the longest wait: %s", got)
		}
	}
}

func TestGuessersAreBounded(t *testing.T) {
	var g guesses
	now := time.Unix(1_700_000_000, 0)
	for i := range maxGuessers + 100 {
		if err := g.admit(now, fmt.Sprint("user", i), "10.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.count) > maxGuessers {
		t.Errorf("%d counts are kept", len(g.count))
	}
}

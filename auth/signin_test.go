package auth

import (
	"errors"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testconfig"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestSignInsAreTheClusters uses a sign-in's tokens at several backends of one cluster. The second one is also like a
// restarted one: it has only config.
func TestSignInsAreTheClusters(t *testing.T) {
	first, c := seeded(t)
	second := newAuth(t, first.opts.Config, c)
	refresh := func(t *testing.T, a *Auth, tokens *Tokens, want error) *Tokens {
		t.Helper()
		next, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer)
		if !errors.Is(err, want) {
			t.Fatalf("refresh: %v, want %v", err, want)
		}
		return next
	}
	t.Run("a refresh", func(t *testing.T) {
		one := signIn(t, first)
		two := refresh(t, first, one, nil)
		three := refresh(t, second, two, nil)
		refresh(t, first, three, nil)
	})
	t.Run("a traded token", func(t *testing.T) {
		one := signIn(t, first)
		two := refresh(t, first, one, nil)
		refresh(t, second, one, ErrReused)
		refresh(t, first, two, ErrSignInOver)
		refresh(t, second, two, ErrSignInOver)
	})
	t.Run("a logout", func(t *testing.T) {
		one := signIn(t, first)
		if err := first.Logout(t.Context(), one.Access, one.Refresh); err != nil {
			t.Fatal(err)
		}
		refresh(t, second, one, ErrSignInOver)
		refresh(t, first, one, ErrSignInOver)
	})
	t.Run("a new password from an administrator", func(t *testing.T) {
		one := signIn(t, first)
		c.advance(time.Second)
		_, err := config.Update(t.Context(), first.opts.Config, config.Users, "", "admin", func(u *resource.User) (*resource.User, error) {
			u.SignedOut = c.now().Unix()
			return u, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		refresh(t, first, one, ErrSignInOver)
		refresh(t, second, signIn(t, first), nil)
	})
}

func TestSessionsAreForgottenWhenTheirTokensHaveExpired(t *testing.T) {
	a, c := seeded(t)
	kept := func() int { return config.Len(a.opts.Config.Snapshot(), config.Sessions) }
	for range 10 {
		tokens := signIn(t, a)
		if err := a.Logout(t.Context(), tokens.Access, tokens.Refresh); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(time.Hour)
	tokens := signIn(t, a)
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer); err != nil {
		t.Fatal(err)
	}
	if kept() != 11 {
		t.Fatalf("%d sign-ins are kept, want 11", kept())
	}
	c.advance(a.opts.RefreshLifetime - time.Minute) // the first ones expired long ago, the last one did not
	last := signIn(t, a)
	if err := a.Logout(t.Context(), last.Access, last.Refresh); err != nil {
		t.Fatal(err)
	}
	if kept() != 2 {
		t.Errorf("%d sign-ins are kept, want 2", kept())
	}
}

// TestSignInsGoOnWithoutAStore: a user stays signed in while the store is down.
func TestSignInsGoOnWithoutAStore(t *testing.T) {
	s, b := testconfig.WithBroker(t)
	a := newAuth(t, s, new(clock))
	if err := a.Seed(t.Context(), SeedOptions{Username: "admin", Password: agentPassword}); err != nil {
		t.Fatal(err)
	}
	one := signIn(t, a)
	leaving := signIn(t, a)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	refresh := func(tokens *Tokens, want error) *Tokens {
		t.Helper()
		next, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer)
		if !errors.Is(err, want) {
			t.Fatalf("refresh: %v, want %v", err, want)
		}
		return next
	}
	two := refresh(one, nil)
	three := refresh(two, nil)
	refresh(two, ErrReused)
	refresh(three, ErrSignInOver)
	if err := a.Logout(t.Context(), leaving.Access, leaving.Refresh); err != nil {
		t.Fatal(err)
	}
	refresh(leaving, ErrSignInOver)
}

func TestLifetimes(t *testing.T) {
	s := testconfig.Store(t)
	c := new(clock)
	for _, tc := range []struct {
		access, refresh time.Duration
		ok              bool
	}{
		{time.Minute, time.Hour, true}, {time.Hour, time.Hour, true}, {time.Hour, time.Minute, false},
		{time.Millisecond, time.Hour, false}, {-time.Minute, time.Hour, false}, {0, time.Minute, false},
	} {
		if _, err := New(Options{Config: s, AccessLifetime: tc.access, RefreshLifetime: tc.refresh}); (err == nil) != tc.ok {
			t.Errorf("%v and %v: %v, want ok %v", tc.access, tc.refresh, err, tc.ok)
		}
	}
	a, err := New(Options{Config: s, Now: c.now, HashCost: 4, AccessLifetime: time.Minute, RefreshLifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Seed(t.Context(), SeedOptions{Username: "admin", Password: agentPassword}); err != nil {
		t.Fatal(err)
	}
	tokens := signIn(t, a)
	if tokens.ExpiresAt != c.in(time.Minute) {
		t.Errorf("expires at %d, want in a minute", tokens.ExpiresAt)
	}
	c.advance(time.Minute)
	if _, err := a.Bearer(t.Context(), tokens.Access); !errors.Is(err, ErrToken) {
		t.Errorf("bearer after a minute: %v", err)
	}
	c.advance(59 * time.Minute)
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer); !errors.Is(err, ErrSignInOver) {
		t.Errorf("refresh after an hour: %v", err)
	}
}

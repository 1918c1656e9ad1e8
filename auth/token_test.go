package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const testIssuer = "http://127.0.0.1:8080"

func signIn(t testing.TB, a *Auth) *Tokens {
	t.Helper()
	id, err := a.Password(t.Context(), "admin", agentPassword)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := a.Issue(t.Context(), id, testIssuer)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func payload(t *testing.T, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("token has %d parts", len(parts))
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestClaims(t *testing.T) {
	a, c := seeded(t)
	tokens := signIn(t, a)
	if tokens.ExpiresAt != c.in(5*time.Minute) {
		t.Errorf("expires at %d, want in 5 minutes", tokens.ExpiresAt)
	}
	access, refresh := payload(t, tokens.Access), payload(t, tokens.Refresh)
	hex := regexp.MustCompile(`^[0-9a-f]{32}$`)
	for _, m := range []map[string]any{access, refresh} {
		for _, key := range []string{"jti", "session_id"} {
			if s, _ := m[key].(string); !hex.MatchString(s) {
				t.Errorf("%s is %q, want 32 hex digits", key, s)
			}
		}
	}
	if access["session_id"] != refresh["session_id"] || access["jti"] == refresh["jti"] {
		t.Error("the two tokens do not belong together, or are one")
	}
	for _, m := range []map[string]any{access, refresh} {
		delete(m, "jti")
		delete(m, "session_id")
	}
	wantAccess := map[string]any{
		"exp": float64(c.in(5 * time.Minute)), "iss": testIssuer, "sub": "admin",
		"groups":   []any{"cluster-admins", "system:users"},
		"provider": map[string]any{"provider_id": "basic", "provider_type": "", "user_id": "admin"},
		"api_key":  false,
	}
	wantRefresh := map[string]any{
		"exp": float64(c.in(12 * time.Hour)), "iat": float64(c.in(0)), "sub": "admin", "groups": nil,
		"provider": map[string]any{"provider_id": "", "provider_type": "", "user_id": ""},
		"api_key":  false,
	}
	if !reflect.DeepEqual(access, wantAccess) {
		t.Errorf("access token has claims\n%v, want\n%v", access, wantAccess)
	}
	if !reflect.DeepEqual(refresh, wantRefresh) {
		t.Errorf("refresh token has claims\n%v, want\n%v", refresh, wantRefresh)
	}
}

func TestBearer(t *testing.T) {
	a, c := seeded(t)
	tokens := signIn(t, a)
	other, _ := seeded(t)
	forged := signIn(t, other).Access
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims{RegisteredClaims: jwt.RegisteredClaims{
		Subject: "admin", ExpiresAt: jwt.NewNumericDate(c.now().Add(time.Hour))}, Groups: []string{clusterAdmins}}).
		SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	k, _ := a.signingKeys(t.Context())
	eternal, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{RegisteredClaims: jwt.RegisteredClaims{Subject: "admin"}}).SignedString(k.access)
	if err != nil {
		t.Fatal(err)
	}

	id, err := a.Bearer(t.Context(), tokens.Access)
	if err != nil || id.User != "admin" || !slices.Equal(id.Groups, []string{"cluster-admins", "system:users"}) {
		t.Fatalf("access token: %v, %v", id, err)
	}
	for name, token := range map[string]string{
		"refresh token": tokens.Refresh, "of another cluster": forged, "unsigned": unsigned, "without an end": eternal,
		"empty": "", "garbage": "not-a-token", "tampered": tokens.Access[:len(tokens.Access)-4] + "AAAA",
	} {
		if _, err := a.Bearer(t.Context(), token); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v, want ErrToken", name, err)
		}
	}

	c.advance(5*time.Minute - time.Second)
	if _, err := a.Bearer(t.Context(), tokens.Access); err != nil {
		t.Errorf("a second before its end: %v", err)
	}
	c.advance(time.Second)
	if _, err := a.Bearer(t.Context(), tokens.Access); !errors.Is(err, ErrToken) {
		t.Errorf("at its end: %v", err)
	}
}

func TestDisabledUserIsOutAtOnce(t *testing.T) {
	a, _ := seeded(t)
	tokens := signIn(t, a)
	disable := func(v bool) {
		_, err := config.Update(t.Context(), a.opts.Config, config.Users, "", "admin", func(u *resource.User) (*resource.User, error) {
			u.Disabled = v
			return u, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	disable(true)
	if _, err := a.Bearer(t.Context(), tokens.Access); !errors.Is(err, ErrToken) {
		t.Errorf("bearer: %v", err)
	}
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer); !errors.Is(err, ErrSignInOver) {
		t.Errorf("refresh: %v", err)
	}
	if a.Active(&Identity{User: "admin"}) {
		t.Error("still active")
	}
	disable(false)
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, testIssuer); err != nil {
		t.Errorf("refresh when enabled again: %v", err)
	}
}

func TestRefresh(t *testing.T) {
	a, c := seeded(t)
	refresh := func(t *testing.T, a *Auth, access, refresh *Tokens, want error) *Tokens {
		t.Helper()
		tokens, err := a.Refresh(t.Context(), access.Access, refresh.Refresh, testIssuer)
		if !errors.Is(err, want) {
			t.Fatalf("refresh: %v, want %v", err, want)
		}
		return tokens
	}

	t.Run("rotates", func(t *testing.T) {
		first := signIn(t, a)
		c.advance(time.Hour) // the access token expired long ago
		second := refresh(t, a, first, first, nil)
		if second.Access == first.Access || second.Refresh == first.Refresh || second.ExpiresAt != c.in(5*time.Minute) {
			t.Errorf("got %v after %v", second, first)
		}
		if payload(t, first.Access)["session_id"] != payload(t, second.Access)["session_id"] {
			t.Error("a refresh began another sign-in")
		}
		if _, err := a.Bearer(t.Context(), second.Access); err != nil {
			t.Error(err)
		}
		third := refresh(t, a, first, second, nil) // any access token of the sign-in will do
		refresh(t, a, third, third, nil)
	})
	t.Run("a second use ends the sign-in", func(t *testing.T) {
		first := signIn(t, a)
		second := refresh(t, a, first, first, nil)
		refresh(t, a, first, first, ErrReused)
		refresh(t, a, second, second, ErrSignInOver)
		refresh(t, a, first, first, ErrSignInOver)
	})
	t.Run("logout", func(t *testing.T) {
		first := signIn(t, a)
		for range 2 {
			if err := a.Logout(t.Context(), first.Access, first.Refresh); err != nil {
				t.Fatal(err)
			}
		}
		refresh(t, a, first, first, ErrSignInOver)
		if err := a.Logout(t.Context(), first.Access, "garbage"); !errors.Is(err, ErrToken) {
			t.Errorf("logout with garbage: %v", err)
		}
	})
	t.Run("tokens of two sign-ins", func(t *testing.T) {
		refresh(t, a, signIn(t, a), signIn(t, a), ErrToken)
	})
	t.Run("wrong kinds", func(t *testing.T) {
		x := signIn(t, a)
		refresh(t, a, &Tokens{Access: x.Refresh}, x, ErrToken)
		refresh(t, a, x, &Tokens{Refresh: x.Access}, ErrToken)
		refresh(t, a, &Tokens{}, x, ErrToken)
		refresh(t, a, x, x, nil)
	})
	t.Run("ends after twelve hours", func(t *testing.T) {
		x := signIn(t, a)
		c.advance(12*time.Hour - time.Second)
		x = refresh(t, a, x, x, nil)
		c.advance(12 * time.Hour)
		refresh(t, a, x, x, ErrSignInOver)
	})
	t.Run("survives a restart", func(t *testing.T) {
		first := signIn(t, a)
		second := refresh(t, a, first, first, nil)
		restarted := newAuth(t, a.opts.Config, c)
		if _, err := restarted.Bearer(t.Context(), second.Access); err != nil {
			t.Errorf("bearer: %v", err)
		}
		third := refresh(t, restarted, second, second, nil)
		refresh(t, restarted, first, first, ErrReused)
		refresh(t, restarted, third, third, ErrSignInOver)
	})
	t.Run("reads groups again", func(t *testing.T) {
		x := signIn(t, a)
		_, err := config.Update(t.Context(), a.opts.Config, config.Users, "", "admin", func(u *resource.User) (*resource.User, error) {
			u.Groups = []string{"ops"}
			return u, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := a.Bearer(t.Context(), x.Access); !slices.Equal(id.Groups, []string{"cluster-admins", "system:users"}) {
			t.Errorf("before: %v", id.Groups)
		}
		x = refresh(t, a, x, x, nil)
		if id, _ := a.Bearer(t.Context(), x.Access); !slices.Equal(id.Groups, []string{"ops", "system:users"}) {
			t.Errorf("after: %v", id.Groups)
		}
	})
}

package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/testoidc"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const secretVerifier = "a-verifier-that-is-long-enough-for-rfc-7636-43ch"

func challengeOf(v string) string {
	digest := sha256.Sum256([]byte(v))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

func putProvider(t testing.TB, a *Auth, p *resource.AuthProvider) {
	t.Helper()
	// As through the API, with its defaults.
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	complete := new(resource.AuthProvider)
	if err := json.Unmarshal(text, complete); err != nil {
		t.Fatal(err)
	}
	if err := complete.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := config.Put(t.Context(), a.opts.Config, config.AuthProviders, complete); err != nil {
		t.Fatal(err)
	}
}

// withOIDC is an Auth with a provider "sso", whose user is alice@example.org in the groups ops and dev.
func withOIDC(t testing.TB, change func(*resource.OIDC)) (*Auth, *clock, *testoidc.Provider) {
	t.Helper()
	a, c := seeded(t)
	c.Store(time.Now().Unix() - 1_700_000_000) // the provider's tokens have today's date
	t.Cleanup(a.providers.http.CloseIdleConnections)
	p := testoidc.Start(t, testoidc.Behaviour{Claims: map[string]any{
		"sub": "4711", "email": "alice@example.org", "email_verified": true, "groups": []string{"ops", "dev", "system:users"},
	}})
	o := &resource.OIDC{
		Server: p.URL, ClientID: testoidc.ClientID, ClientSecret: testoidc.ClientSecret, UsernameClaim: "email",
		UsernamePrefix: "sso", GroupsClaim: "groups", GroupsPrefix: "sso", AdditionalScopes: []string{"email", "groups"},
	}
	if change != nil {
		change(o)
	}
	putProvider(t, a, &resource.AuthProvider{Type: resource.OIDCType, Metadata: resource.ObjectMeta{Name: "sso"}, OIDC: o})
	return a, c, p
}

// browse opens a URL as a browser would, and returns the query with which the provider sends it back.
func browse(t testing.TB, a *Auth, location string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Get(location)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("the provider answered %s: %v", resp.Status, err)
	}
	return back.Query()
}

const ownCallback = "http://lapwing.example:8080/callback"

// flow plays a browser's sign-in up to the client's callback.
func flow(t testing.TB, a *Auth) url.Values {
	t.Helper()
	location, id, sealed, err := a.BeginFlow(t.Context(), Flow{
		Callback: "http://127.0.0.1:8000/done?x=1", State: "mine", Challenge: challengeOf(secretVerifier), RedirectURI: ownCallback,
	})
	if err != nil {
		t.Fatal(err)
	}
	q := browse(t, a, location)
	if q.Get("state") != id {
		t.Fatalf("the provider sent back the state %q, want %q", q.Get("state"), id)
	}
	callback, err := a.FinishFlow(t.Context(), sealed, id, q.Get("code"), q.Get("error"))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(callback)
	if err != nil {
		t.Fatal(err)
	}
	if u.Host != "127.0.0.1:8000" || u.Path != "/done" || u.Query().Get("x") != "1" || u.Query().Get("state") != "mine" {
		t.Fatalf("the browser is sent to %s", callback)
	}
	return u.Query()
}

func redeemed(t testing.TB, a *Auth) *Identity {
	t.Helper()
	q := flow(t, a)
	id, err := a.Redeem(t.Context(), q.Get("code"), secretVerifier)
	if err != nil {
		t.Fatalf("redeem %v: %v", q, err)
	}
	return id
}

func TestOIDC(t *testing.T) {
	a, c, p := withOIDC(t, nil)
	id := redeemed(t, a)
	if id.User != "sso:alice@example.org" || !slices.Equal(id.Groups, []string{"sso:dev", "sso:ops", "sso:system:users"}) {
		t.Fatalf("signed in as %+v", id)
	}
	tokens, err := a.Issue(t.Context(), id, "http://x")
	if err != nil {
		t.Fatal(err)
	}
	who, err := a.Bearer(t.Context(), tokens.Access)
	if err != nil || who.User != id.User || !slices.Contains(who.Groups, "sso:ops") || !slices.Contains(who.Groups, usersGroup) {
		t.Fatalf("the token is of %+v, %v", who, err)
	}
	if !a.Active(who) {
		t.Error("who has just signed in is not active")
	}
	if strings.Contains(tokens.Refresh, "ops") || who.Origin.Type != resource.OIDCType {
		t.Errorf("origin is %+v", who.Origin)
	}

	// Groups follow the provider at each refresh. The provider rotates its own refresh tokens.
	for _, groups := range [][]string{{"ops"}, {"ops", "admins"}, {}} {
		p.Set(func(b *testoidc.Behaviour) { b.Claims["groups"] = groups })
		c.advance(time.Minute)
		if tokens, err = a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); err != nil {
			t.Fatal(err)
		}
		who, err := a.Bearer(t.Context(), tokens.Access)
		if err != nil || len(who.Groups) != len(groups)+1 {
			t.Errorf("with the groups %v the token has %+v, %v", groups, who, err)
		}
	}
	// A refresh token that comes again ends the sign-in before the provider is asked with a token that is invalid there
	// too.
	stolen, err := a.Issue(t.Context(), redeemed(t, a), "http://x")
	if err != nil {
		t.Fatal(err)
	}
	taken, err := a.Refresh(t.Context(), stolen.Access, stolen.Refresh, "http://x")
	if err != nil {
		t.Fatal(err)
	}
	asked := p.Requests("/token")
	if _, err := a.Refresh(t.Context(), stolen.Access, stolen.Refresh, "http://x"); !errors.Is(err, ErrReused) {
		t.Errorf("a traded refresh token: %v", err)
	}
	if _, err := a.Refresh(t.Context(), taken.Access, taken.Refresh, "http://x"); !errors.Is(err, ErrSignInOver) {
		t.Errorf("the other half of a stolen sign-in: %v", err)
	}
	if n := p.Requests("/token") - asked; n != 0 {
		t.Errorf("the provider was asked %d times about that", n)
	}
	// A provider that is down ends no sign-in.
	p.Set(func(b *testoidc.Behaviour) { b.Down = true })
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("refresh while the provider is down: %v", err)
	}
	p.Set(func(b *testoidc.Behaviour) { b.Down = false })
	if tokens, err = a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); err != nil {
		t.Errorf("refresh after the provider was down: %v", err)
	}
	// An answer that cannot be verified admits no user, but ends no sign-in: perhaps only the keys cannot be read.
	p.Set(func(b *testoidc.Behaviour) { b.StrangeKey = true })
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("refresh with a token by a strange key: %v", err)
	}
	p.Set(func(b *testoidc.Behaviour) { b.StrangeKey = false })
	if tokens, err = a.Issue(t.Context(), redeemed(t, a), "http://x"); err != nil {
		t.Fatal(err)
	}
	// A provider that has revoked its consent ends it.
	p.Set(func(b *testoidc.Behaviour) { b.Revoked = true })
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); !errors.Is(err, ErrSignInOver) {
		t.Errorf("refresh after the provider revoked it: %v", err)
	}
	// Without its provider a user is unknown.
	if err := config.Delete(t.Context(), a.opts.Config, config.AuthProviders, "", "sso"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Bearer(t.Context(), tokens.Access); !errors.Is(err, ErrToken) {
		t.Errorf("token of a provider that is gone: %v", err)
	}
	if a.Active(who) {
		t.Error("active without a provider")
	}
}

// TestRefreshTokenStaysWithItsServer points the provider's definition to another server. The refresh tokens of users
// who signed in before must not be sent there.
func TestRefreshTokenStaysWithItsServer(t *testing.T) {
	a, c, _ := withOIDC(t, nil)
	tokens, err := a.Issue(t.Context(), redeemed(t, a), "http://x")
	if err != nil {
		t.Fatal(err)
	}
	other := testoidc.Start(t, testoidc.Behaviour{Claims: map[string]any{"sub": "4711", "email": "alice@example.org", "groups": []string{"admins"}}})
	putProvider(t, a, &resource.AuthProvider{Type: resource.OIDCType, Metadata: resource.ObjectMeta{Name: "sso"}, OIDC: &resource.OIDC{
		Server: other.URL, ClientID: testoidc.ClientID, ClientSecret: testoidc.ClientSecret, UsernameClaim: "email",
		UsernamePrefix: "sso", GroupsClaim: "groups", GroupsPrefix: "sso",
	}})
	c.advance(time.Minute)
	if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); !errors.Is(err, ErrSignInOver) {
		t.Errorf("refresh with another server: %v", err)
	}
	if n := other.Requests("/token"); n != 0 {
		t.Errorf("the other server got %d refresh tokens", n)
	}
}

// TestOIDCClaims: names and groups come from the configured claims, from the token or the userinfo endpoint.
func TestOIDCClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*resource.OIDC)
		claims   map[string]any
		userInfo map[string]any
		want     string // user and groups; "" if refused
	}{
		"subject": {
			change: func(o *resource.OIDC) { o.UsernameClaim, o.UsernamePrefix = "", "" },
			claims: map[string]any{"sub": "4711"}, want: "4711",
		},
		"group as text": {claims: map[string]any{"sub": "1", "email": "a@b", "groups": "ops"}, want: "sso:a@b sso:ops"},
		"userinfo": {
			claims: map[string]any{"sub": "1"}, userInfo: map[string]any{"email": "a@b", "groups": []string{"ops"}},
			want: "sso:a@b sso:ops",
		},
		"no groups at all": {claims: map[string]any{"sub": "1", "email": "a@b"}, want: "sso:a@b"},
		"system groups are ours": {
			change: func(o *resource.OIDC) { o.GroupsPrefix = "" },
			claims: map[string]any{"sub": "1", "email": "a@b", "groups": []string{"system:agents", "ops", "ops"}}, want: "sso:a@b ops",
		},
		"userinfo of another": {claims: map[string]any{"sub": "1"}, userInfo: map[string]any{"sub": "2", "email": "a@b"}},
		"no name":             {claims: map[string]any{"sub": "1"}},
		"unverified address":  {claims: map[string]any{"sub": "1", "email": "a@b", "email_verified": false, "groups": "x"}},
		"unverified in text":  {claims: map[string]any{"sub": "1", "email": "a@b", "email_verified": "false", "groups": "x"}},
		"verified as null":    {claims: map[string]any{"sub": "1", "email": "a@b", "email_verified": nil, "groups": "x"}},
		"verified in text":    {claims: map[string]any{"sub": "1", "email": "a@b", "email_verified": "true"}, want: "sso:a@b"},
		"name with newline":   {claims: map[string]any{"sub": "1", "email": "a\nb", "groups": "x"}},
		"name is no text":     {claims: map[string]any{"sub": "1", "email": 7, "groups": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, p := withOIDC(t, tc.change)
			p.Set(func(b *testoidc.Behaviour) { b.Claims, b.UserInfo = tc.claims, tc.userInfo })
			q := flow(t, a)
			if tc.want == "" {
				if q.Get("error") != flowDenied || q.Get("code") != "" {
					t.Errorf("the client gets %v, want an error", q)
				}
				return
			}
			id, err := a.Redeem(t.Context(), q.Get("code"), secretVerifier)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(append([]string{id.User}, id.Groups...), " "); got != tc.want {
				t.Errorf("signed in as %q, want %q", got, tc.want)
			}
		})
	}
}

// TestOIDCForgery sends forged answers in the provider's place.
func TestOIDCForgery(t *testing.T) {
	for name, change := range map[string]func(*testoidc.Behaviour){
		"for another client":  func(b *testoidc.Behaviour) { b.Audience = "other" },
		"of another issuer":   func(b *testoidc.Behaviour) { b.Issuer = "http://other" },
		"of another request":  func(b *testoidc.Behaviour) { b.Nonce = "other" },
		"expired":             func(b *testoidc.Behaviour) { b.Age = time.Hour },
		"by a strange key":    func(b *testoidc.Behaviour) { b.StrangeKey = true },
		"not signed":          func(b *testoidc.Behaviour) { b.NoKey = true },
		"denied by the user":  func(b *testoidc.Behaviour) { b.Deny = true },
		"without a user name": func(b *testoidc.Behaviour) { b.Claims = map[string]any{"sub": "1"} },
	} {
		t.Run(name, func(t *testing.T) {
			a, _, p := withOIDC(t, nil)
			p.Set(change)
			if q := flow(t, a); q.Get("error") != flowDenied || q.Get("code") != "" {
				t.Errorf("the client gets %v", q)
			}
		})
	}
	t.Run("a new key", func(t *testing.T) {
		a, _, p := withOIDC(t, nil)
		for range 3 {
			redeemed(t, a)
		}
		p.RotateKey(t)
		redeemed(t, a)
		if n := p.Requests("/keys"); n != 2 {
			t.Errorf("the provider's keys were fetched %d times for two keys", n)
		}
		if n := p.Requests("/.well-known/openid-configuration"); n != 1 {
			t.Errorf("the provider was discovered %d times", n)
		}
	})
}

// TestCode: a code is valid once, for a minute, for the client that began the flow.
func TestCode(t *testing.T) {
	a, c, _ := withOIDC(t, nil)
	code := flow(t, a).Get("code")
	refused := func(code, v, why string) {
		t.Helper()
		if id, err := a.Redeem(t.Context(), code, v); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %+v, %v", why, id, err)
		}
	}
	refused(code, "another", "another verifier")
	refused(code, "", "no verifier")
	refused(code+"x", secretVerifier, "a changed code")
	refused("", secretVerifier, "no code")
	if _, err := a.Redeem(t.Context(), code, secretVerifier); err != nil {
		t.Error(err)
	}
	refused(code, secretVerifier, "the code again")
	late := flow(t, a).Get("code")
	c.advance(codeLife)
	refused(late, secretVerifier, "an old code")
	if a.providers.spend(a.opts.Now(), "x", a.opts.Now()); len(a.providers.spent) != 1 {
		t.Errorf("%d codes are remembered, want those only that are not too old anyway", len(a.providers.spent))
	}
}

// TestFlow: which clients may begin a flow, and which may finish it.
func TestFlow(t *testing.T) {
	a, c, p := withOIDC(t, nil)
	good := Flow{Callback: "/", Challenge: challengeOf(secretVerifier), RedirectURI: ownCallback}
	for _, callback := range []string{
		"", "done", "//evil.example/", `/\evil.example/`, `\\evil.example`, "http://evil.example/", "https://127.0.0.1/",
		"http://127.0.0.1.evil.example/", "http://user@127.0.0.1/", "/#x", "javascript:alert(1)", "/a\r\nb", "http:///x",
		"http://0x7f000001/", "/" + strings.Repeat("x", 600),
	} {
		f := good
		f.Callback = callback
		var bad *FlowError
		if _, _, _, err := a.BeginFlow(t.Context(), f); !errors.As(err, &bad) {
			t.Errorf("callback %q: %v", callback, err)
		}
	}
	for _, callback := range []string{"/", "/events?x=y", "http://localhost:8000/", "http://[::1]:8000/x", "http://127.0.0.1:1/"} {
		f := good
		f.Callback = callback
		if _, _, _, err := a.BeginFlow(t.Context(), f); err != nil {
			t.Errorf("callback %q: %v", callback, err)
		}
	}
	for _, challenge := range []string{"", "plain", challengeOf(secretVerifier) + "=="} {
		f := good
		f.Challenge = challenge
		if _, _, _, err := a.BeginFlow(t.Context(), f); err == nil {
			t.Errorf("challenge %q was taken", challenge)
		}
	}
	f := good
	f.Provider = "other"
	if _, _, _, err := a.BeginFlow(t.Context(), f); !errors.Is(err, ErrNoProvider) {
		t.Errorf("another provider: %v", err)
	}

	location, id, sealed, err := a.BeginFlow(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	code := browse(t, a, location).Get("code")
	_, otherID, otherSealed, err := a.BeginFlow(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	for what, finish := range map[string][2]string{
		"no cookie": {"", id}, "another's cookie": {otherSealed, id}, "another's state": {sealed, otherID}, "no state": {sealed, ""},
		"changed": {sealed[:len(sealed)-4] + "AAAA", id}, "not sealed": {"e30", id},
	} {
		if _, err := a.FinishFlow(t.Context(), finish[0], finish[1], code, ""); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.advance(FlowLife)
	if _, err := a.FinishFlow(t.Context(), sealed, id, code, ""); !errors.Is(err, ErrToken) {
		t.Errorf("an old flow: %v", err)
	}

	// While the provider is down, its known metadata is used; the client learns that the provider is down.
	location, id, sealed, err = a.BeginFlow(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	code = browse(t, a, location).Get("code")
	p.Set(func(b *testoidc.Behaviour) { b.Down = true })
	c.advance(discoveryLife)
	if _, _, _, err := a.BeginFlow(t.Context(), good); err != nil {
		t.Errorf("begin while the provider is down: %v", err)
	}
	c.advance(-discoveryLife)
	callback, err := a.FinishFlow(t.Context(), sealed, id, code, "")
	if err != nil || !strings.Contains(callback, flowUnavailable) {
		t.Errorf("finish while the provider is down: %s, %v", callback, err)
	}
	other, otherClock := seeded(t)
	if _, _, _, err := other.BeginFlow(t.Context(), good); !errors.Is(err, ErrNoProvider) {
		t.Errorf("without a provider: %v", err)
	}
	putProvider(t, other, &resource.AuthProvider{Type: "oidc", Metadata: resource.ObjectMeta{Name: "down"}, OIDC: &resource.OIDC{Server: p.URL, ClientID: "x"}})
	asked := p.Requests("/.well-known/openid-configuration")
	for range 5 {
		if _, _, _, err := other.BeginFlow(t.Context(), good); !errors.Is(err, ErrUnavailable) {
			t.Errorf("with one that was never up: %v", err)
		}
	}
	if n := p.Requests("/.well-known/openid-configuration") - asked; n != 1 {
		t.Errorf("one that is down was asked %d times at once", n)
	}
	p.Set(func(b *testoidc.Behaviour) { b.Down = false })
	otherClock.advance(discoveryPause)
	if _, _, _, err := other.BeginFlow(t.Context(), good); err != nil {
		t.Errorf("after it was down: %v", err)
	}
	putProvider(t, other, &resource.AuthProvider{Type: "oidc", Metadata: resource.ObjectMeta{Name: "second"}, OIDC: &resource.OIDC{Server: p.URL, ClientID: "x"}})
	var bad *FlowError
	if _, _, _, err := other.BeginFlow(t.Context(), good); !errors.As(err, &bad) {
		t.Errorf("with two to choose from: %v", err)
	}
}

// TestOfflineAccess: without a refresh token of the provider a sign-in ends with the provider's token.
func TestOfflineAccess(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*resource.OIDC)
		scopes []string
	}{
		"not wanted": {change: func(o *resource.OIDC) { o.DisableOfflineAccess = true }},
		"not known":  {scopes: []string{"openid", "email", "groups"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, c, p := withOIDC(t, tc.change)
			p.Set(func(b *testoidc.Behaviour) { b.Scopes = tc.scopes })
			tokens, err := a.Issue(t.Context(), redeemed(t, a), "http://x")
			if err != nil {
				t.Fatal(err)
			}
			c.advance(6 * time.Minute)
			if tokens, err = a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); err != nil {
				t.Fatal(err)
			}
			if who, err := a.Bearer(t.Context(), tokens.Access); err != nil || !slices.Contains(who.Groups, "sso:ops") {
				t.Errorf("after a refresh: %+v, %v", who, err)
			}
			c.advance(5 * time.Minute)
			if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); !errors.Is(err, ErrSignInOver) {
				t.Errorf("after the end of the provider's token: %v", err)
			}
		})
	}
	t.Run("no ID token at refresh", func(t *testing.T) {
		a, _, p := withOIDC(t, nil)
		tokens, err := a.Issue(t.Context(), redeemed(t, a), "http://x")
		if err != nil {
			t.Fatal(err)
		}
		refresh := func(want string) {
			t.Helper()
			if tokens, err = a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); err != nil {
				t.Fatal(err)
			}
			who, err := a.Bearer(t.Context(), tokens.Access)
			if err != nil || !slices.Contains(who.Groups, want) {
				t.Errorf("after a refresh: %+v, %v, want the group %s", who, err, want)
			}
		}
		p.Set(func(b *testoidc.Behaviour) { b.NoIDTokenAtRefresh = true })
		refresh("sso:ops") // nothing else is told
		p.Set(func(b *testoidc.Behaviour) {
			b.UserInfo = map[string]any{"email": "alice@example.org", "groups": []string{"others"}}
		})
		refresh("sso:others")
		p.Set(func(b *testoidc.Behaviour) {
			b.UserInfo = map[string]any{"email": "bob@example.org", "groups": []string{"others"}}
		})
		if _, err := a.Refresh(t.Context(), tokens.Access, tokens.Refresh, "http://x"); !errors.Is(err, ErrSignInOver) {
			t.Errorf("after the user was renamed: %v", err)
		}
	})
}

// Package testoidc is an OpenID Connect provider for tests: discovery, authorization codes with PKCE, signed ID tokens,
// rotating refresh tokens, and a userinfo endpoint. Every browser on its sign-in page is signed in as its User. Its
// answers can be made wrong in the ways that a client must detect.
package testoidc

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The client that the provider knows.
const (
	ClientID     = "lapwing"
	ClientSecret = "client-secret"
)

// Behaviour is the provider's behaviour. Tests change it with Provider.Set.
type Behaviour struct {
	// Claims are the signed-in user's; sub is required. UserInfo has those that only the userinfo endpoint returns.
	Claims, UserInfo map[string]any
	// Scopes are the ones that the provider announces. Default openid, profile, email, groups and offline_access.
	Scopes []string
	// NoIDTokenAtRefresh omits the ID token from refreshes, as providers may.
	NoIDTokenAtRefresh bool
	// Deny answers the sign-in with an error.
	Deny bool
	// Down answers everything with 503.
	Down bool
	// Revoked refuses all refresh tokens.
	Revoked bool
	// Audience, Issuer and Nonce replace those in ID tokens. Age makes the tokens that old. StrangeKey signs them with
	// an unpublished key, NoKey with none.
	Audience, Issuer, Nonce string
	Age                     time.Duration
	StrangeKey, NoKey       bool
}

// Provider is a running provider.
type Provider struct {
	URL string

	server  *httptest.Server
	mu      sync.Mutex // guards the fields below
	now     Behaviour
	keys    []*rsa.PrivateKey // the last one signs
	codes   map[string]grant
	refresh map[string]bool
	access  map[string]bool

	requests map[string]int
}

// grant is what a code can be exchanged for.
type grant struct{ challenge, nonce, redirect string }

// Start runs a provider until the test ends.
func Start(t testing.TB, b Behaviour) *Provider {
	t.Helper()
	p := &Provider{now: b, codes: map[string]grant{}, refresh: map[string]bool{}, access: map[string]bool{}, requests: map[string]int{}}
	p.RotateKey(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("/keys", p.serveKeys)
	mux.HandleFunc("/authorize", p.authorize)
	mux.HandleFunc("/token", p.token)
	mux.HandleFunc("/userinfo", p.userInfo)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests[r.URL.Path]++
		if p.now.Down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	p.URL = p.server.URL
	t.Cleanup(p.server.Close)
	return p
}

// Set changes the provider's behaviour from now on.
func (p *Provider) Set(change func(*Behaviour)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
}

// RotateKey signs new tokens with a new key.
func (p *Provider) RotateKey(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p.keys = append(p.keys, key)
}

// Requests returns how often a path was requested.
func (p *Provider) Requests(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[path]
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	scopes := p.now.Scopes
	if scopes == nil {
		scopes = []string{"openid", "profile", "email", "groups", "offline_access"}
	}
	answer(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/userinfo", "scopes_supported": scopes,
		"id_token_signing_alg_values_supported": []string{"RS256"}, "response_types_supported": []string{"code"},
	})
}

func (p *Provider) serveKeys(w http.ResponseWriter, _ *http.Request) {
	var keys []map[string]string
	for i, key := range p.keys {
		keys = append(keys, map[string]string{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": strconv.Itoa(i),
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		})
	}
	answer(w, http.StatusOK, map[string]any{"keys": keys})
}

// authorize is the sign-in page: it sends the browser back at once.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || q.Get("response_type") != "code" ||
		!strings.Contains(" "+q.Get("scope")+" ", " openid ") || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "bad request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	known := p.now.Scopes
	for _, scope := range strings.Fields(q.Get("scope")) {
		if known != nil && !strings.Contains(" "+strings.Join(known, " ")+" ", " "+scope+" ") {
			http.Error(w, "invalid_scope "+scope, http.StatusBadRequest)
			return
		}
	}
	out := url.Values{"state": {q.Get("state")}}
	if p.now.Deny {
		out.Set("error", "access_denied")
	} else {
		code := rand.Text()
		p.codes[code] = grant{q.Get("code_challenge"), q.Get("nonce"), q.Get("redirect_uri")}
		if strings.Contains(q.Get("scope"), "offline_access") {
			p.codes[code+" offline"] = grant{}
		}
		out.Set("code", code)
	}
	back.RawQuery = out.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if id != ClientID || secret != ClientSecret {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	refuse := func() { answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"}) }
	nonce, offline := "", true
	switch r.FormValue("grant_type") {
	case "authorization_code":
		code := r.FormValue("code")
		g, known := p.codes[code]
		_, offline = p.codes[code+" offline"]
		delete(p.codes, code)
		digest := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if !known || g.redirect != r.FormValue("redirect_uri") || base64.RawURLEncoding.EncodeToString(digest[:]) != g.challenge {
			refuse()
			return
		}
		nonce = g.nonce
	case "refresh_token":
		token := r.FormValue("refresh_token")
		if !p.refresh[token] || p.now.Revoked {
			refuse()
			return
		}
		delete(p.refresh, token)
	default:
		answer(w, http.StatusBadRequest, map[string]string{"error": "unsupported_grant_type"})
		return
	}
	access := rand.Text()
	p.access[access] = true
	out := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 300}
	if offline {
		refresh := rand.Text()
		p.refresh[refresh] = true
		out["refresh_token"] = refresh
	}
	if nonce != "" || !p.now.NoIDTokenAtRefresh {
		out["id_token"] = p.idToken(nonce)
	}
	answer(w, http.StatusOK, out)
}

func (p *Provider) idToken(nonce string) string {
	begin := time.Now().Add(-p.now.Age)
	claims := jwt.MapClaims{"iss": p.URL, "aud": ClientID, "iat": begin.Unix(), "exp": begin.Add(10 * time.Minute).Unix()}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	for name, value := range p.now.Claims {
		claims[name] = value
	}
	for name, value := range map[string]string{"aud": p.now.Audience, "iss": p.now.Issuer, "nonce": p.now.Nonce} {
		if value != "" {
			claims[name] = value
		}
	}
	if p.now.NoKey {
		text, _ := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
		return text
	}
	key := p.keys[len(p.keys)-1]
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = strconv.Itoa(len(p.keys) - 1)
	if p.now.StrangeKey {
		key, _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	text, _ := token.SignedString(key)
	return text
}

func (p *Provider) userInfo(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !p.access[token] {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_token"})
		return
	}
	claims := map[string]any{"sub": p.now.Claims["sub"]}
	for name, value := range p.now.UserInfo {
		claims[name] = value
	}
	answer(w, http.StatusOK, claims)
}

package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// ErrNoProvider says that there is no OpenID Connect provider of that name, or none at all.
var ErrNoProvider = errors.New("there is no such sign-in provider")

const (
	// FlowLife bounds the user's time on the provider's pages.
	FlowLife = 10 * time.Minute
	// codeLife bounds the time until the client redeems its code.
	codeLife = time.Minute
	// discoveryLife is how long a provider's metadata is used. Its keys are read again whenever a new one signs.
	discoveryLife = time.Hour
	// discoveryPause is how long a provider is not asked again after a failure.
	discoveryPause = 5 * time.Second

	flowPurpose = "flow"
	codePurpose = "code"
)

// Flow is a sign-in in a browser, as a client requests it. The client gets a code at its callback and trades it for
// tokens with the verifier whose digest is Challenge (RFC 7636). A stolen code alone is worthless.
type Flow struct {
	Provider  string // of type oidc; "" for the only one
	Callback  string // a path of our own, or a URL of the client's own host
	State     string // returned to the client at its callback
	Challenge string // SHA-256 of the verifier, base64url
	// RedirectURI is where the provider sends the browser back to, unless its definition says so.
	RedirectURI string
}

// openFlow is a flow while the browser is at the provider. The browser keeps it, sealed.
type openFlow struct {
	Flow
	ID       string // the provider's state parameter
	Nonce    string
	Verifier string // ours towards the provider
	Until    int64
}

// earned is what a code is redeemed for.
type earned struct {
	ID        string
	User      string
	Groups    []string
	Provider  string
	UserID    string
	Upstream  upstream
	Challenge string
	Until     int64
}

// FlowError rejects a flow, with a reason for the client.
type FlowError struct{ Reason string }

func (e *FlowError) Error() string { return e.Reason }

func badFlow(format string, args ...any) error { return &FlowError{fmt.Sprintf(format, args...)} }

// OIDCProviders returns the providers for sign-ins in a browser, sorted by name.
func (a *Auth) OIDCProviders() []*resource.AuthProvider {
	var out []*resource.AuthProvider
	for def := range config.List(a.opts.Config.Snapshot(), config.AuthProviders, "") {
		if def.OIDC != nil {
			out = append(out, def)
		}
	}
	return out
}

// BeginFlow returns the provider's URL for the browser, and the sealed flow that the browser must bring back, with its
// id. It fails with a *FlowError, ErrNoProvider or ErrUnavailable.
func (a *Auth) BeginFlow(ctx context.Context, f Flow) (location, id, sealed string, err error) {
	if err := checkFlow(&f); err != nil {
		return "", "", "", err
	}
	c, err := a.providers.oidcFor(ctx, f.Provider)
	if err != nil {
		return "", "", "", err
	}
	f.Provider = c.def.Metadata.Name
	if c.def.OIDC.RedirectURI != "" {
		f.RedirectURI = c.def.OIDC.RedirectURI
	}
	open := openFlow{
		Flow: f, ID: randomID(), Nonce: randomID(), Verifier: oauth2.GenerateVerifier(),
		Until: a.opts.Now().Add(FlowLife).Unix(),
	}
	if sealed, err = a.providers.seal(ctx, flowPurpose, open); err != nil {
		return "", "", "", err
	}
	location = c.oauth(f.RedirectURI).AuthCodeURL(open.ID, oidc.Nonce(open.Nonce), oauth2.S256ChallengeOption(open.Verifier))
	return location, open.ID, sealed, nil
}

// checkFlow refuses callbacks that would send a code to another machine than the client's, except our own page.
func checkFlow(f *Flow) error {
	if digest, err := base64.RawURLEncoding.DecodeString(f.Challenge); err != nil || len(digest) != sha256.Size {
		return badFlow("challenge must be the SHA-256 of a verifier, in base64url without padding")
	}
	if len(f.State) > 512 || len(f.Callback) > 512 {
		return badFlow("state and callback must not be longer than 512 bytes")
	}
	u, err := url.Parse(f.Callback)
	switch {
	case err != nil || u.Fragment != "" || u.User != nil || strings.ContainsAny(f.Callback, "\\\r\n\t"):
		return badFlow("callback must be a path or a loopback URL")
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(f.Callback, "/") && !strings.HasPrefix(f.Callback, "//"):
		return nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return badFlow("callback must be a path or a loopback URL")
}

// Errors that a client gets at its callback in place of a code, as RFC 6749 names them.
const (
	flowDenied      = "access_denied"
	flowUnavailable = "temporarily_unavailable"
)

// FinishFlow takes the code or error that the browser brings from the provider, and returns the client's callback with
// a code to redeem or with an error. It fails with ErrToken for a flow that is not ours or too old.
func (a *Auth) FinishFlow(ctx context.Context, sealed, id, code, wrong string) (callback string, err error) {
	var f openFlow
	if err := a.providers.open(ctx, flowPurpose, sealed, &f); err != nil {
		return "", err
	}
	if id == "" || subtle.ConstantTimeCompare([]byte(f.ID), []byte(id)) != 1 || a.opts.Now().Unix() >= f.Until {
		return "", ErrToken
	}
	u, err := url.Parse(f.Callback)
	if err != nil {
		return "", fmt.Errorf("return to client: %w", err)
	}
	q := u.Query()
	if f.State != "" {
		q.Set("state", f.State)
	}
	answer := func(name, value string) (string, error) {
		q.Set(name, value)
		u.RawQuery = q.Encode()
		return u.String(), nil
	}
	if wrong != "" {
		a.rare.Warn("OpenID Connect provider refused a sign-in", f.Provider, "provider", f.Provider, "reason", wrong)
		return answer("error", flowDenied)
	}
	who, err := a.providers.finish(ctx, &f, code)
	switch {
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrNoProvider):
		return answer("error", flowDenied)
	case errors.Is(err, ErrUnavailable):
		return answer("error", flowUnavailable)
	case err != nil:
		return "", err
	}
	text, err := a.providers.seal(ctx, codePurpose, earned{
		ID: randomID(), User: who.User, Groups: who.Groups, Provider: who.Origin.Provider, UserID: who.Origin.UserID,
		Upstream: who.Origin.upstream, Challenge: f.Challenge, Until: a.opts.Now().Add(codeLife).Unix(),
	})
	if err != nil {
		return "", err
	}
	return answer("code", text)
}

func (p *providers) finish(ctx context.Context, f *openFlow, code string) (*Identity, error) {
	c, err := p.oidcFor(ctx, f.Provider)
	if err != nil {
		return nil, err
	}
	who, err := p.exchange(ctx, c, f, code)
	p.count(resource.OIDCType, err)
	return who, err
}

// Redeem trades the code of a finished flow for its identity, once and within a minute. It fails with ErrToken.
func (a *Auth) Redeem(ctx context.Context, code, verifier string) (*Identity, error) {
	var e earned
	if err := a.providers.open(ctx, codePurpose, code, &e); err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(digest[:])
	now := a.opts.Now()
	if now.Unix() >= e.Until || subtle.ConstantTimeCompare([]byte(challenge), []byte(e.Challenge)) != 1 {
		return nil, ErrToken
	}
	if !a.providers.spend(now, e.ID, time.Unix(e.Until, 0)) {
		a.rare.Warn("the code of a sign-in was used a second time", e.User, "user", e.User)
		return nil, ErrToken
	}
	o := Origin{Provider: e.Provider, Type: resource.OIDCType, UserID: e.UserID, upstream: e.Upstream}
	if !a.known(e.User, o) {
		return nil, ErrToken
	}
	return &Identity{User: e.User, Groups: e.Groups, Origin: o}, nil
}

// spend marks a code as redeemed, and reports whether it was the first time.
func (p *providers) spend(now time.Time, id string, until time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for old, end := range p.spent {
		if !now.Before(end) {
			delete(p.spent, old)
		}
	}
	if _, again := p.spent[id]; again {
		return false
	}
	p.spent[id] = until
	return true
}

// oidcClient is a provider with its metadata.
type oidcClient struct {
	def      *resource.AuthProvider // the snapshot's: another pointer means that the definition changed
	provider *oidc.Provider
	offline  bool // requests refresh tokens
	until    time.Time
}

// oidcFor returns the provider of that name, or the only one.
func (p *providers) oidcFor(ctx context.Context, name string) (*oidcClient, error) {
	var def *resource.AuthProvider
	for d := range config.List(p.config.Snapshot(), config.AuthProviders, "") {
		if d.OIDC == nil || name != "" && d.Metadata.Name != name {
			continue
		}
		if def != nil {
			return nil, badFlow("there are several providers: say which one")
		}
		def = d
	}
	if def == nil {
		return nil, ErrNoProvider
	}
	name = def.Metadata.Name
	p.mu.Lock()
	c, silence := p.oidc[name], p.mute[name]
	p.mu.Unlock()
	if c != nil && c.def != def {
		c = nil
	}
	if c != nil && p.now().Before(c.until) {
		return c, nil
	}
	if silence.def != def || !p.now().Before(silence.until) {
		fresh, err := p.discover(ctx, def)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil {
			p.oidc[name] = fresh
			return fresh, nil
		}
		p.mute[name] = mute{def, p.now().Add(discoveryPause)}
		p.rare.Warn("cannot reach OpenID Connect provider", name, "provider", name, "err", err)
	}
	if c != nil {
		return c, nil // metadata from an hour ago is better than none
	}
	return nil, fmt.Errorf("%w: %s", ErrUnavailable, name)
}

// mute is a provider whose metadata could not be read. It is not asked again for a moment, because any client can
// trigger the request.
type mute struct {
	def   *resource.AuthProvider
	until time.Time
}

func (p *providers) discover(ctx context.Context, def *resource.AuthProvider) (*oidcClient, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), def.OIDC.Server)
	if err != nil {
		return nil, fmt.Errorf("discover %s: %w", def.OIDC.Server, err)
	}
	var said struct {
		Scopes []string `json:"scopes_supported"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, fmt.Errorf("discover %s: %w", def.OIDC.Server, err)
	}
	return &oidcClient{
		def: def, provider: provider, until: p.now().Add(discoveryLife),
		// Some providers refuse scopes that they do not know.
		offline: !def.OIDC.DisableOfflineAccess && (len(said.Scopes) == 0 || slices.Contains(said.Scopes, oidc.ScopeOfflineAccess)),
	}, nil
}

func (c *oidcClient) oauth(redirect string) *oauth2.Config {
	scopes := []string{oidc.ScopeOpenID}
	if c.offline {
		scopes = append(scopes, oidc.ScopeOfflineAccess)
	}
	for _, s := range c.def.OIDC.AdditionalScopes {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return &oauth2.Config{
		ClientID: c.def.OIDC.ClientID, ClientSecret: c.def.OIDC.ClientSecret, Endpoint: c.provider.Endpoint(),
		RedirectURL: redirect, Scopes: scopes,
	}
}

// exchange trades the provider's code for the user's identity there.
func (p *providers) exchange(ctx context.Context, c *oidcClient, f *openFlow, code string) (*Identity, error) {
	ctx = oidc.ClientContext(ctx, p.http)
	token, err := c.oauth(f.RedirectURI).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return nil, p.refused(c, "trade code", ErrCredentials, err)
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := p.verify(ctx, c, raw)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1 {
		p.rare.Warn("sign-in was refused: its token answers another request", c.def.Metadata.Name, "provider", c.def.Metadata.Name)
		return nil, ErrCredentials
	}
	s, err := read(id)
	if err != nil {
		return nil, err
	}
	if err := p.complete(ctx, c, s, token); err != nil {
		return nil, err
	}
	return p.identity(c, s, token)
}

// verify checks an ID token: signature, issuer, audience, time.
func (p *providers) verify(ctx context.Context, c *oidcClient, raw string) (*oidc.IDToken, error) {
	verifier := c.provider.Verifier(&oidc.Config{ClientID: c.def.OIDC.ClientID, Now: p.now})
	id, err := verifier.Verify(ctx, raw)
	if err != nil {
		p.rare.Warn("sign-in was refused: its token is not valid", c.def.Metadata.Name, "provider", c.def.Metadata.Name, "err", err)
		return nil, ErrCredentials
	}
	return id, nil
}

// refused distinguishes a provider's refusal from a failure to answer.
func (p *providers) refused(c *oidcClient, step string, no, err error) error {
	p.rare.Warn("OpenID Connect provider sent no usable answer", c.def.Metadata.Name,
		"provider", c.def.Metadata.Name, "step", step, "err", err)
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.Response != nil {
		switch answer.Response.StatusCode {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
			return no
		}
	}
	return fmt.Errorf("%w: %s", ErrUnavailable, c.def.Metadata.Name)
}

// said are a provider's claims about a user.
type said struct {
	subject string
	claims  map[string]any
	until   time.Time // end of the token with the claims
}

func read(id *oidc.IDToken) (said, error) {
	s := said{subject: id.Subject, claims: map[string]any{}, until: id.Expiry}
	if err := id.Claims(&s.claims); err != nil {
		return s, fmt.Errorf("read claims of sign-in: %w", err)
	}
	return s, nil
}

// complete asks the provider for wanted claims that are missing.
func (p *providers) complete(ctx context.Context, c *oidcClient, s said, token *oauth2.Token) error {
	if !lacks(s.claims, c.def.OIDC.UsernameClaim, c.def.OIDC.GroupsClaim) || c.provider.UserInfoEndpoint() == "" {
		return nil
	}
	more, err := c.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		p.rare.Warn("OpenID Connect provider sent no user information", c.def.Metadata.Name, "provider", c.def.Metadata.Name, "err", err)
		return fmt.Errorf("%w: %s", ErrUnavailable, c.def.Metadata.Name)
	}
	// Without this check another user's access token would be accepted.
	if more.Subject != s.subject {
		p.rare.Warn("sign-in was refused: the provider answered about another user", c.def.Metadata.Name, "provider", c.def.Metadata.Name)
		return ErrCredentials
	}
	claims := map[string]any{}
	if err := more.Claims(&claims); err != nil {
		return fmt.Errorf("read claims of sign-in: %w", err)
	}
	for name, value := range claims {
		if _, ok := s.claims[name]; !ok {
			s.claims[name] = value
		}
	}
	return nil
}

// identity makes an identity of the claims.
func (p *providers) identity(c *oidcClient, s said, token *oauth2.Token) (*Identity, error) {
	d := c.def.OIDC
	name, err := username(d, s)
	if err != nil {
		p.rare.Warn("sign-in was refused", c.def.Metadata.Name, "provider", c.def.Metadata.Name, "subject", s.subject, "err", err)
		return nil, ErrCredentials
	}
	return &Identity{
		User:   withPrefix(d.UsernamePrefix, name),
		Groups: groups(words(s.claims[d.GroupsClaim]), d.GroupsPrefix, nil),
		Origin: Origin{
			Provider: c.def.Metadata.Name, Type: resource.OIDCType, UserID: s.subject,
			upstream: upstream{Server: d.Server, Refresh: token.RefreshToken, Until: s.until.Unix()},
		},
	}, nil
}

// username returns the user's name from the configured claim.
func username(d *resource.OIDC, s said) (string, error) {
	claim := d.UsernameClaim
	if claim == "" {
		return s.subject, nil
	}
	name, ok := s.claims[claim].(string)
	switch {
	case !ok || strings.TrimSpace(name) == "":
		return "", fmt.Errorf("there is no claim %q", claim)
	case len(name) > 256 || strings.ContainsFunc(name, unicode.IsControl):
		return "", fmt.Errorf("claim %q cannot be a name", claim)
	case claim == "email" && !emailVerified(s.claims):
		return "", errors.New("the address has not been verified")
	}
	return name, nil
}

// emailVerified reports whether the provider vouches for the address. Some providers send the claim as a string. A
// provider that does not send it at all is trusted, as most directories verify their users' addresses.
func emailVerified(claims map[string]any) bool {
	verified, said := claims["email_verified"]
	return !said || verified == true || verified == "true"
}

// words returns the values of a claim: a string, or a list with strings.
func words(claim any) []string {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			if word, ok := e.(string); ok {
				out = append(out, word)
			}
		}
		return out
	}
	return nil
}

func lacks(claims map[string]any, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, ok := claims[name]
		return name != "" && !ok
	})
}

// renewOIDC asks the provider for a new token of the user. Without a refresh token, the last claims count until the
// token that carried them expires.
func (p *providers) renewOIDC(ctx context.Context, def *resource.AuthProvider, user string, o Origin) (*Identity, error) {
	if o.upstream.Server != "" && o.upstream.Server != def.OIDC.Server {
		return nil, ErrSignInOver // the user's refresh token is only for the server that issued it
	}
	if o.upstream.Refresh == "" {
		if p.now().Unix() >= o.upstream.Until {
			return nil, ErrSignInOver
		}
		return &Identity{User: user, Groups: o.upstream.Groups, Origin: o}, nil
	}
	c, err := p.oidcFor(ctx, def.Metadata.Name)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, p.http)
	token, err := c.oauth("").TokenSource(ctx, &oauth2.Token{RefreshToken: o.upstream.Refresh}).Token()
	if err != nil {
		return nil, p.refused(c, "refresh", ErrSignInOver, err)
	}
	who, err := p.renewed(ctx, c, user, o, token)
	if errors.Is(err, ErrCredentials) {
		return nil, ErrSignInOver
	}
	return who, err
}

// renewed returns the identity of a refreshed token. A refresh need not bring an ID token: then the provider is asked
// for the user's claims, and claims that it does not send stay as they were.
func (p *providers) renewed(ctx context.Context, c *oidcClient, user string, o Origin, token *oauth2.Token) (*Identity, error) {
	s := said{subject: o.UserID, claims: map[string]any{}, until: time.Unix(o.upstream.Until, 0)}
	raw, _ := token.Extra("id_token").(string)
	if raw != "" {
		id, err := p.verify(ctx, c, raw)
		if err != nil { // perhaps only because the provider's keys cannot be read
			return nil, fmt.Errorf("%w: %s", ErrUnavailable, c.def.Metadata.Name)
		}
		if s, err = read(id); err != nil {
			return nil, err
		}
		if s.subject != o.UserID {
			return nil, ErrCredentials
		}
	}
	if err := p.complete(ctx, c, s, token); err != nil {
		return nil, err
	}
	if raw == "" && lacks(s.claims, c.def.OIDC.UsernameClaim, c.def.OIDC.GroupsClaim) {
		o.upstream.Refresh = token.RefreshToken
		return &Identity{User: user, Groups: o.upstream.Groups, Origin: o}, nil
	}
	return p.identity(c, s, token)
}

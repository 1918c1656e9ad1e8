package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Tokens are the result of a sign-in or refresh.
type Tokens struct {
	Access    string `json:"access_token"`
	ExpiresAt int64  `json:"expires_at"` // Unix seconds, of the access token
	Refresh   string `json:"refresh_token"`
}

// claims are the claims of Sensu's tokens, which its clients read.
type claims struct {
	jwt.RegisteredClaims
	Groups    []string `json:"groups"`
	Provider  provider `json:"provider"`
	APIKey    bool     `json:"api_key"`
	SessionID string   `json:"session_id"`
	Upstream  string   `json:"upstream,omitempty"` // of refresh tokens, see sealUpstream
}

type provider struct {
	ID     string `json:"provider_id"`
	Type   string `json:"provider_type"`
	UserID string `json:"user_id"`
}

// keys sign tokens. Each kind has its own key, so that neither can be used as the other.
type keys struct{ access, refresh []byte }

// signingKeys returns the keys, which come from the cluster's store. They are read at the first token and not in New.
func (a *Auth) signingKeys(ctx context.Context) (*keys, error) {
	if k := a.keys.Load(); k != nil {
		return k, nil
	}
	secret, err := a.opts.Config.Secret(ctx, "jwt", 32)
	if err != nil {
		return nil, fmt.Errorf("get key of tokens: %w", err)
	}
	derive := func(purpose string) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(purpose))
		return mac.Sum(nil)
	}
	k := &keys{access: derive("access token"), refresh: derive("refresh token")}
	a.keys.Store(k)
	return k, nil
}

// Issue makes the tokens of a new sign-in. The issuer is the URL under which the client reached this backend.
func (a *Auth) Issue(ctx context.Context, id *Identity, issuer string) (*Tokens, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return nil, err
	}
	return a.sign(ctx, k, id, issuer, randomID(), randomID())
}

func (a *Auth) sign(ctx context.Context, k *keys, id *Identity, issuer, session, refreshID string) (*Tokens, error) {
	now := a.opts.Now()
	access := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: id.User, ID: randomID(),
			ExpiresAt: jwt.NewNumericDate(now.Add(a.opts.AccessLifetime)),
		},
		Groups:    withGroup(id.Groups, usersGroup),
		Provider:  id.Origin.provider(id.User),
		SessionID: session,
	}
	refresh := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: id.User, ID: refreshID,
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(a.opts.RefreshLifetime)),
		},
		SessionID: session,
	}
	var err error
	if !id.Origin.Local() {
		a.learn(ctx, id)
		refresh.Provider = access.Provider
		if refresh.Upstream, err = a.sealUpstream(ctx, id); err != nil {
			return nil, err
		}
	}
	t := &Tokens{ExpiresAt: access.ExpiresAt.Unix()}
	if t.Access, err = a.signAccess(k, access); err != nil {
		return nil, fmt.Errorf("sign access token of %q: %w", id.User, err)
	}
	if t.Refresh, err = jwt.NewWithClaims(jwt.SigningMethodHS256, refresh).SignedString(k.refresh); err != nil {
		return nil, fmt.Errorf("sign refresh token of %q: %w", id.User, err)
	}
	a.metrics.issued.Inc()
	return t, nil
}

// parse reads a genuine token. The caller checks whether it has expired.
func parse(token string, key []byte) (*claims, error) {
	return parseWith(token, key, jwt.SigningMethodHS256.Alg())
}

func parseWith(token string, key any, algorithm string) (*claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{algorithm}), jwt.WithoutClaimsValidation())
	if err != nil || c.Subject == "" || c.ExpiresAt == nil {
		return nil, ErrToken
	}
	return &c, nil
}

func (a *Auth) expired(c *claims) bool { return !a.opts.Now().Before(c.ExpiresAt.Time) }

// Bearer returns the identity in an access token, with the groups of its issue. It fails with ErrToken.
func (a *Auth) Bearer(ctx context.Context, access string) (*Identity, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return nil, err
	}
	c, err := a.parseAccess(access, k)
	if err != nil || a.expired(c) {
		return nil, ErrToken
	}
	o := c.Provider.origin()
	if !a.known(c.Subject, o) {
		return nil, ErrToken
	}
	return &Identity{User: c.Subject, Groups: c.Groups, Origin: o, session: c.SessionID, expires: c.ExpiresAt.Time}, nil
}

// Expiry returns when an access token expires. It fails with ErrToken.
func (a *Auth) Expiry(ctx context.Context, access string) (time.Time, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return time.Time{}, err
	}
	c, err := a.parseAccess(access, k)
	if err != nil {
		return time.Time{}, ErrToken
	}
	return c.ExpiresAt.Time, nil
}

// pair reads the tokens of one sign-in. The access token may have expired; the refresh token is not accepted without
// it.
func (a *Auth) pair(ctx context.Context, access, refresh string) (*keys, *claims, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return nil, nil, err
	}
	ac, err := a.parseAccess(access, k)
	if err != nil {
		return nil, nil, err
	}
	rc, err := parse(refresh, k.refresh)
	if err != nil {
		return nil, nil, err
	}
	if ac.Subject != rc.Subject || ac.SessionID != rc.SessionID {
		return nil, nil, ErrToken
	}
	return k, rc, nil
}

// Refresh trades the tokens of a sign-in for new ones, with the user's present groups. A refresh token can be traded
// once. It fails with ErrToken, ErrSignInOver, ErrReused or ErrUnavailable.
func (a *Auth) Refresh(ctx context.Context, access, refresh, issuer string) (*Tokens, error) {
	k, c, err := a.pair(ctx, access, refresh)
	if err != nil {
		return nil, err
	}
	if a.expired(c) || c.IssuedAt == nil {
		return nil, ErrSignInOver
	}
	// A provider must not be asked with a token that was traded before: it would refuse, but the sign-in must be ended.
	var id *Identity
	if !a.signIns.spent(c) {
		if id, err = a.renew(ctx, c); err != nil {
			return nil, err
		}
	}
	now, next := a.opts.Now(), randomID()
	if err := a.signIns.rotate(ctx, now, now.Add(a.opts.RefreshLifetime), c, next); err != nil {
		if errors.Is(err, ErrReused) {
			a.metrics.reused.Inc()
			a.rare.Warn("a refresh token was used a second time, its sign-in is ended", c.Subject, "user", c.Subject)
		}
		return nil, err
	}
	if id == nil {
		return nil, ErrSignInOver
	}
	return a.sign(ctx, k, id, issuer, c.SessionID, next)
}

// Logout ends the sign-in of the tokens, even one that has ended before. It fails with ErrToken.
func (a *Auth) Logout(ctx context.Context, access, refresh string) error {
	_, c, err := a.pair(ctx, access, refresh)
	if err != nil {
		return err
	}
	now := a.opts.Now()
	return a.signIns.end(ctx, now, now.Add(a.opts.RefreshLifetime), c)
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

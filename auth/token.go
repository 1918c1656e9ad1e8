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

const (
	accessLife  = 5 * time.Minute
	refreshLife = 12 * time.Hour
)

// Tokens are what a sign-in or refresh gives.
type Tokens struct {
	Access    string `json:"access_token"`
	ExpiresAt int64  `json:"expires_at"` // Unix seconds, of the access token
	Refresh   string `json:"refresh_token"`
}

// claims are those of Sensu's tokens, which its clients read.
type claims struct {
	jwt.RegisteredClaims
	Groups    []string `json:"groups"`
	Provider  provider `json:"provider"`
	APIKey    bool     `json:"api_key"`
	SessionID string   `json:"session_id"`
}

type provider struct {
	ID     string `json:"provider_id"`
	Type   string `json:"provider_type"`
	UserID string `json:"user_id"`
}

// keys sign tokens. There is one for each kind, so that neither kind can pass for the other.
type keys struct{ access, refresh []byte }

// signingKeys are asked for at the first token and not in New: they come from the cluster's store.
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

// Issue makes the tokens of a new session. The issuer is the URL under which the client found this backend.
func (a *Auth) Issue(ctx context.Context, id *Identity, issuer string) (*Tokens, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return nil, err
	}
	return a.sign(k, id, issuer, randomID(), randomID())
}

func (a *Auth) sign(k *keys, id *Identity, issuer, session, refreshID string) (*Tokens, error) {
	now := a.opts.Now()
	access := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: id.User, ID: randomID(),
			ExpiresAt: jwt.NewNumericDate(now.Add(accessLife)),
		},
		Groups:    withGroup(id.Groups, usersGroup),
		Provider:  provider{ID: "basic", UserID: id.User},
		SessionID: session,
	}
	refresh := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: id.User, ID: refreshID,
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(refreshLife)),
		},
		SessionID: session,
	}
	t := &Tokens{ExpiresAt: access.ExpiresAt.Unix()}
	var err error
	if t.Access, err = jwt.NewWithClaims(jwt.SigningMethodHS256, access).SignedString(k.access); err != nil {
		return nil, fmt.Errorf("sign access token of %q: %w", id.User, err)
	}
	if t.Refresh, err = jwt.NewWithClaims(jwt.SigningMethodHS256, refresh).SignedString(k.refresh); err != nil {
		return nil, fmt.Errorf("sign refresh token of %q: %w", id.User, err)
	}
	a.metrics.issued.Inc()
	return t, nil
}

// parse reads a genuine token; whether it has expired is left to the caller.
func parse(token string, key []byte) (*claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithoutClaimsValidation())
	if err != nil || c.Subject == "" || c.ExpiresAt == nil {
		return nil, ErrToken
	}
	return &c, nil
}

func (a *Auth) expired(c *claims) bool { return !a.opts.Now().Before(c.ExpiresAt.Time) }

// Bearer is who an access token was made for, with the groups of that time. It fails with ErrToken.
func (a *Auth) Bearer(ctx context.Context, access string) (*Identity, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return nil, err
	}
	c, err := parse(access, k.access)
	if err != nil || a.expired(c) {
		return nil, ErrToken
	}
	if _, ok := a.user(c.Subject); !ok {
		return nil, ErrToken
	}
	return &Identity{User: c.Subject, Groups: c.Groups}, nil
}

// pair reads the tokens of one session. The access token may have expired; the refresh token proves nothing without it.
func (a *Auth) pair(ctx context.Context, access, refresh string) (*keys, *claims, error) {
	k, err := a.signingKeys(ctx)
	if err != nil {
		return nil, nil, err
	}
	ac, err := parse(access, k.access)
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

// Refresh trades the tokens of a session for new ones, with the user's present groups. A refresh token can be traded
// once. It fails with ErrToken, ErrSession or ErrReused.
func (a *Auth) Refresh(ctx context.Context, access, refresh, issuer string) (*Tokens, error) {
	k, c, err := a.pair(ctx, access, refresh)
	if err != nil {
		return nil, err
	}
	u, ok := a.user(c.Subject)
	if !ok || a.expired(c) {
		return nil, ErrSession
	}
	next := randomID()
	if err := a.sessions.rotate(a.opts.Now(), c.SessionID, c.ID, next); err != nil {
		if errors.Is(err, ErrReused) {
			a.metrics.reused.Inc()
			a.log.Warn("a refresh token was used a second time, its session is ended", "user", c.Subject)
		}
		return nil, err
	}
	return a.sign(k, &Identity{User: u.Username, Groups: u.Groups}, issuer, c.SessionID, next)
}

// Logout ends the session of the tokens; again if it has ended before. It fails with ErrToken.
func (a *Auth) Logout(ctx context.Context, access, refresh string) error {
	_, c, err := a.pair(ctx, access, refresh)
	if err != nil {
		return err
	}
	a.sessions.end(a.opts.Now(), c.SessionID)
	return nil
}

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// renewAhead is how long before they end tokens are renewed: a request must arrive before the end.
const renewAhead = 10 * time.Second

// expire reports whether the access token ends soon; false if its end is not known.
func (t Tokens) expire(now time.Time) bool {
	return t.ExpiresAt != 0 && !now.Add(renewAhead).Before(time.Unix(t.ExpiresAt, 0))
}

// credential is what one request sends as its Authorization.
type credential struct {
	header    string
	access    string // the access token in authorization, if any
	renewable bool
}

// Tokens returns the present pair, or zero before the first sign-in.
func (c *Client) Tokens() Tokens {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tokens
}

// Login trades Options.Username and Password for tokens. The client uses them from then on.
func (c *Client) Login(ctx context.Context) (Tokens, error) {
	basic := base64.StdEncoding.EncodeToString([]byte(c.opts.Username + ":" + c.opts.Password))
	return c.trade(ctx, "sign in", request{method: http.MethodGet, path: "/auth"}, "Basic "+basic)
}

// TestCredentials returns nil if the server knows a user of that name and password. It does not sign in.
func (c *Client) TestCredentials(ctx context.Context, username, password string) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	basic := base64.StdEncoding.EncodeToString([]byte(username + ":" + password))
	resp, err := c.roundTrip(ctx, request{method: http.MethodGet, path: "/auth/test"}, "Basic "+basic)
	if err != nil {
		return fmt.Errorf("test credentials: %w", because(ctx, err))
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("test credentials: %w", readError(resp))
	}
	return resp.Body.Close()
}

// Renew trades the present tokens for new ones, whether they are about to expire or not.
func (c *Client) Renew(ctx context.Context) (Tokens, error) {
	t := c.Tokens()
	if t.AccessToken == "" && c.opts.Username == "" {
		return Tokens{}, ErrNoCredentials
	}
	if _, err := c.renew(ctx, c.bearer(t)); err != nil {
		return Tokens{}, err
	}
	return c.Tokens(), nil
}

// Logout ends the sign-in on the server and drops the tokens.
func (c *Client) Logout(ctx context.Context) error {
	t := c.Tokens()
	if t.AccessToken == "" {
		return ErrNoCredentials
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	r := request{method: http.MethodPost, path: "/auth/logout", in: RefreshToken{t.RefreshToken}}
	resp, err := c.roundTrip(ctx, r, "Bearer "+t.AccessToken)
	if err != nil {
		return fmt.Errorf("sign out: %w", because(ctx, err))
	}
	if resp.StatusCode >= 400 {
		return fmt.Errorf("sign out: %w", readError(resp))
	}
	resp.Body.Close()
	c.adopt(Tokens{})
	return nil
}

// Authorization returns what requests send as their header Authorization, for one that the caller makes itself. It renews
// tokens that are about to expire.
func (c *Client) Authorization(ctx context.Context) (string, error) {
	cred, err := c.credential(ctx)
	return cred.header, err
}

// credential returns the credential for a request. It renews tokens that are about to expire.
func (c *Client) credential(ctx context.Context) (credential, error) {
	if c.opts.APIKey != "" {
		return credential{header: "Key " + c.opts.APIKey}, nil
	}
	t := c.Tokens()
	if t.AccessToken == "" && c.opts.Username == "" {
		return credential{}, ErrNoCredentials
	}
	cred := c.bearer(t)
	if t.AccessToken == "" || (t.expire(time.Now()) && cred.renewable) {
		return c.renew(ctx, cred)
	}
	return cred, nil
}

func (c *Client) bearer(t Tokens) credential {
	return credential{
		header:    "Bearer " + t.AccessToken,
		access:    t.AccessToken,
		renewable: t.RefreshToken != "" || c.opts.Username != "",
	}
}

// renew replaces the stale credential with one that the server accepts. One caller at a time renews; the others see
// that the tokens have changed in the meantime.
func (c *Client) renew(ctx context.Context, stale credential) (credential, error) {
	select {
	case c.renewing <- struct{}{}:
		defer func() { <-c.renewing }()
	case <-ctx.Done():
		return credential{}, context.Cause(ctx)
	}
	t := c.Tokens()
	if t.AccessToken != stale.access {
		return c.bearer(t), nil
	}
	if c.opts.BeforeRefresh != nil && t.RefreshToken != "" {
		newest, done := c.opts.BeforeRefresh()
		defer done()
		if newest.AccessToken != "" && newest.AccessToken != t.AccessToken {
			c.adopt(newest)
			t = newest
			if !t.expire(time.Now()) {
				return c.bearer(t), nil
			}
		}
	}
	var err error
	if t.RefreshToken != "" {
		// Sensu's client would send them to the issuer named in the token. That is a name some proxy saw, perhaps
		// without TLS, and tokens should only go where the user sent us.
		if t, err = c.refresh(ctx, t); err == nil {
			return c.bearer(t), nil
		}
	}
	var refused *Error
	if c.opts.Username == "" || (err != nil && !errors.As(err, &refused)) {
		return credential{}, err
	}
	if t, err = c.Login(ctx); err != nil {
		return credential{}, err
	}
	return c.bearer(t), nil
}

func (c *Client) refresh(ctx context.Context, old Tokens) (Tokens, error) {
	r := request{method: http.MethodPost, path: "/auth/token", in: RefreshToken{old.RefreshToken}}
	return c.trade(ctx, "renew tokens", r, "Bearer "+old.AccessToken)
}

// trade sends a request whose answer is a new pair of tokens, and uses them from then on.
func (c *Client) trade(ctx context.Context, step string, r request, authorization string) (Tokens, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	resp, err := c.roundTrip(ctx, r, authorization)
	if err != nil {
		return Tokens{}, fmt.Errorf("%s: %w", step, because(ctx, err))
	}
	if resp.StatusCode >= 400 {
		return Tokens{}, fmt.Errorf("%s: %w", step, readError(resp))
	}
	defer resp.Body.Close()
	var t Tokens
	if err := json.NewDecoder(resp.Body).Decode(&t); err != nil {
		return Tokens{}, fmt.Errorf("%s: read answer: %w", step, because(ctx, err))
	}
	if t.AccessToken == "" || t.RefreshToken == "" || t.ExpiresAt == 0 {
		return Tokens{}, fmt.Errorf("%s: the answer holds no tokens; is %s the API?", step, c.bases.base())
	}
	c.adopt(t)
	if c.opts.OnTokens != nil {
		c.opts.OnTokens(t)
	}
	return t, nil
}

func (c *Client) adopt(t Tokens) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = t
}

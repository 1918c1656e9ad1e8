package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
)

const signInPath = "/api/enterprise/authentication/v2/oidc/"

// BrowserSignIn is a sign-in on the pages of an OpenID Connect provider, in a browser that comes back to a callback. What
// comes back is of no use without the BrowserSignIn that it was begun with.
type BrowserSignIn struct {
	client                    *Client
	provider, callback, state string
	verifier                  string
}

// SignInWithBrowser begins a sign-in. The provider may be "" if there is only one; the callback is a URL of this host, such
// as http://127.0.0.1:8000/callback.
func (c *Client) SignInWithBrowser(provider, callback string) *BrowserSignIn {
	return &BrowserSignIn{client: c, provider: provider, callback: callback, state: rand.Text(), verifier: rand.Text() + rand.Text()}
}

// URL is where the browser goes.
func (b *BrowserSignIn) URL() string {
	digest := sha256.Sum256([]byte(b.verifier))
	q := url.Values{
		"callback": {b.callback}, "state": {b.state}, "challenge": {base64.RawURLEncoding.EncodeToString(digest[:])},
	}
	if b.provider != "" {
		q.Set("provider", b.provider)
	}
	return b.client.base + signInPath + "authorize?" + q.Encode()
}

// Answers says whether what came to the callback answers this sign-in.
func (b *BrowserSignIn) Answers(q url.Values) bool { return q.Get("state") == b.state }

// Finish takes the query with which the browser came to the callback, and trades it for tokens, which the client uses from
// then on.
func (b *BrowserSignIn) Finish(ctx context.Context, q url.Values) (Tokens, error) {
	switch {
	case !b.Answers(q):
		return Tokens{}, fmt.Errorf("sign in: what came to %s answers another sign-in", b.callback)
	case q.Get("error") != "":
		return Tokens{}, fmt.Errorf("sign in: the provider answered %q", q.Get("error"))
	}
	in := SignInCode{Code: q.Get("code"), Verifier: b.verifier}
	return b.client.trade(ctx, "sign in", request{method: http.MethodPost, path: signInPath + "token", in: in}, "")
}

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

// BrowserSignIn is a sign-in on the pages of an OpenID Connect provider. The browser returns to a callback URL. Only
// the BrowserSignIn that began the sign-in can finish it.
type BrowserSignIn struct {
	client                    *Client
	provider, callback, state string
	verifier                  string
}

// SignInWithBrowser begins a sign-in. The provider may be "" if there is only one. The callback is a URL of this host,
// for example http://127.0.0.1:8000/callback.
func (c *Client) SignInWithBrowser(provider, callback string) *BrowserSignIn {
	return &BrowserSignIn{client: c, provider: provider, callback: callback, state: rand.Text(), verifier: rand.Text() + rand.Text()}
}

// URL returns the URL that the browser must open.
func (b *BrowserSignIn) URL() string {
	digest := sha256.Sum256([]byte(b.verifier))
	q := url.Values{
		"callback": {b.callback}, "state": {b.state}, "challenge": {base64.RawURLEncoding.EncodeToString(digest[:])},
	}
	if b.provider != "" {
		q.Set("provider", b.provider)
	}
	return b.client.bases.base() + signInPath + "authorize?" + q.Encode()
}

// Answers reports whether a query at the callback belongs to this sign-in.
func (b *BrowserSignIn) Answers(q url.Values) bool { return q.Get("state") == b.state }

// Finish trades the query of the browser's request to the callback for tokens. The client uses them from then on.
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

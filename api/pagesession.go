package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
)

// The page of the backend keeps its sign-in in cookies that scripts cannot read: an access token for all requests, and a
// refresh token for the session's own path. A screen on a wall has an API key in place of both, which may only read there. A browser
// adds cookies also to requests that other sites make. So the backend looks at them only in requests with pageHeader, which other
// sites cannot set.
const (
	sessionPath   = "/api/lapwing/v1/session"
	pageHeader    = "X-Lapwing-Page"
	accessCookie  = "lapwing-access"
	refreshCookie = "lapwing-refresh"
	keyCookie     = "lapwing-key"
	// keyLife is how long a browser keeps an API key, in seconds, and keyShown when the page asks again whether it still counts.
	keyLife, keyShown = 400 * 24 * 60 * 60, 300
)

func (a *API) servePageSession() {
	a.route(sessionPath, access{public: true}, methods{
		http.MethodPost: unstored(a.beginSession), http.MethodGet: unstored(a.showSession), http.MethodPut: unstored(a.renewSession),
		http.MethodDelete: unstored(a.endSession),
	})
}

// sessionStart is the body of a sign-in of the page: a name and password, the code of a provider, or an API key.
type sessionStart struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Code     string `json:"code,omitempty"`
	Verifier string `json:"verifier,omitempty"` // the sign-in at the provider was begun with its hash
	// Key is an API key, for a screen on a wall: it stays in the browser until the page signs out or the key is deleted.
	Key string `json:"key,omitempty"`
}

// pageSession is a sign-in of the page.
type pageSession struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// Expires is in how many seconds the sign-in ends unless it is renewed.
	Expires int64 `json:"expires"`
}

// fromPage reports whether a request is made by the page of a backend, and by no other site. A page cannot set headers of a
// websocket.
func fromPage(r *http.Request) bool {
	return r.Header.Get(pageHeader) != "" || r.URL.Path == livePath && sameOrigin(r)
}

// cookieName adds the port to a cookie's name: browsers send cookies to all ports of a host.
func cookieName(name string, r *request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return name + "-" + port
	}
	return name
}

// pageToken returns the access token in the cookie of a request of the page; "" if there is none.
func pageToken(r *request) string { return pageCookie(accessCookie, r) }

// pageKey returns the API key in the cookie of a request of the page; "" if there is none.
func pageKey(r *request) string { return pageCookie(keyCookie, r) }

func pageCookie(name string, r *request) string {
	if !fromPage(r.Request) {
		return ""
	}
	kept, err := r.Cookie(cookieName(name, r))
	if err != nil {
		return ""
	}
	return kept.Value
}

func setCookie(w *response, r *request, name, path, value string, life int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(name, r), Value: value, Path: path, MaxAge: life,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
}

// keep puts tokens into cookies that last as long as the browser is open.
func keep(w *response, r *request, t *auth.Tokens) {
	setCookie(w, r, accessCookie, "/", t.Access, 0)
	setCookie(w, r, refreshCookie, sessionPath, t.Refresh, 0)
}

func forget(w *response, r *request) {
	setCookie(w, r, accessCookie, "/", "", -1)
	setCookie(w, r, refreshCookie, sessionPath, "", -1)
}

// beginSession signs the page in.
func (a *API) beginSession(w *response, r *request) error {
	if !fromPage(r.Request) {
		return notFromPage
	}
	var start sessionStart
	if err := a.decode(w, r, &start); err != nil {
		return err
	}
	if start.Key != "" {
		return a.beginKeySession(w, r, start.Key)
	}
	var id *auth.Identity
	var err error
	if start.Code != "" {
		id, err = a.opts.Auth.Redeem(r.Context(), start.Code, start.Verifier)
	} else {
		id, err = a.signIn(r, start.Username, start.Password)
	}
	if err != nil {
		return a.refuse(w, err, textUnauthorized)
	}
	tokens, err := a.opts.Auth.Issue(r.Context(), id, issuer(r))
	if err != nil {
		return err
	}
	keep(w, r, tokens)
	return w.object(a.sessionOf(id, tokens.ExpiresAt))
}

// beginKeySession keeps an API key in a cookie. Each request checks it anew, so that its deletion ends the session at once.
func (a *API) beginKeySession(w *response, r *request, key string) error {
	id, err := a.opts.Auth.APIKey(key)
	if err != nil {
		return a.refuse(w, err, textUnauthorized)
	}
	forget(w, r) // tokens would count before the key
	setCookie(w, r, keyCookie, "/", key, keyLife)
	return w.object(a.keySession(id))
}

func (a *API) keySession(id *auth.Identity) *pageSession {
	return a.sessionOf(id, a.opts.Now().Unix()+keyShown)
}

// showKeySession answers for a page that has an API key in place of a sign-in.
func (a *API) showKeySession(w *response, r *request) error {
	key := pageKey(r)
	id, err := a.opts.Auth.APIKey(key)
	if err != nil {
		if key != "" {
			setCookie(w, r, keyCookie, "/", "", -1) // it was deleted
		}
		return a.refuse(w, err, textUnauthorized)
	}
	return w.object(a.keySession(id))
}

func (a *API) sessionOf(id *auth.Identity, expires int64) *pageSession {
	groups := id.Groups
	if groups == nil {
		groups = []string{}
	}
	return &pageSession{User: id.User, Groups: groups, Expires: expires - a.opts.Now().Unix()}
}

var notFromPage = invalid("the header %s is missing: this path is for the page of the backend", pageHeader)

// showSession says who is signed in.
func (a *API) showSession(w *response, r *request) error {
	token := pageToken(r)
	if token == "" {
		return a.showKeySession(w, r)
	}
	id, err := a.opts.Auth.Bearer(r.Context(), token)
	if err != nil {
		return a.refuse(w, err, textUnauthorized)
	}
	expires, err := a.opts.Auth.Expiry(r.Context(), token)
	if err != nil {
		return err
	}
	return w.object(a.sessionOf(id, expires.Unix()))
}

// sessionPair returns the tokens in the cookies of a request of the page.
func sessionPair(r *request) (access, refresh string, ok bool) {
	access = pageToken(r)
	kept, err := r.Cookie(cookieName(refreshCookie, r))
	if access == "" || err != nil {
		return "", "", false
	}
	return access, kept.Value, true
}

// renewSession trades the tokens of the page for new ones.
func (a *API) renewSession(w *response, r *request) error {
	access, refresh, ok := sessionPair(r)
	if !ok {
		return a.showKeySession(w, r)
	}
	tokens, err := a.renewals.trade(access, refresh, a.opts.Now(), func() (*auth.Tokens, error) {
		return a.opts.Auth.Refresh(context.WithoutCancel(r.Context()), access, refresh, issuer(r))
	})
	if err != nil {
		if !errors.Is(err, auth.ErrBusy) && !errors.Is(err, auth.ErrUnavailable) {
			forget(w, r)
		}
		return a.refuse(w, err, textUnauthorized)
	}
	id, err := a.opts.Auth.Bearer(r.Context(), tokens.Access)
	if err != nil {
		return err
	}
	keep(w, r, tokens)
	return w.object(a.sessionOf(id, tokens.ExpiresAt))
}

// renewals gives the tabs of a browser that renew a sign-in at the same moment, with the same tokens, the same new ones. Otherwise
// the second use of a refresh token would end the sign-in. Over http, tabs have no other way to take turns.
type renewals struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]*renewal
}

type renewal struct {
	at     time.Time
	once   sync.Once
	tokens *auth.Tokens
	err    error
}

// renewalFor is how long the answer to a renewal is kept.
const renewalFor = 10 * time.Second

// trade calls renew, once for the same tokens.
func (n *renewals) trade(access, refresh string, now time.Time, renew func() (*auth.Tokens, error)) (*auth.Tokens, error) {
	key := sha256.Sum256([]byte(access + " " + refresh))
	n.mu.Lock()
	if n.all == nil {
		n.all = map[[sha256.Size]byte]*renewal{}
	}
	maps.DeleteFunc(n.all, func(_ [sha256.Size]byte, one *renewal) bool {
		return now.Sub(one.at) > renewalFor || now.Before(one.at)
	})
	one, ok := n.all[key]
	if !ok {
		one = &renewal{at: now}
		n.all[key] = one
	}
	n.mu.Unlock()
	one.once.Do(func() {
		if one.tokens, one.err = renew(); one.err != nil {
			n.mu.Lock()
			delete(n.all, key)
			n.mu.Unlock()
		}
	})
	return one.tokens, one.err
}

// endSession signs the page out.
func (a *API) endSession(w *response, r *request) error {
	access, refresh, ok := sessionPair(r)
	if !fromPage(r.Request) {
		return notFromPage
	}
	forget(w, r)
	setCookie(w, r, keyCookie, "/", "", -1)
	if ok {
		if err := a.opts.Auth.Logout(r.Context(), access, refresh); err != nil && !errors.Is(err, auth.ErrToken) {
			return err
		}
	}
	return w.empty(http.StatusNoContent)
}

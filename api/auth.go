package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/internal/clientaddr"
)

// Sensu's texts for refusals. Its client shows them.
const (
	textUnauthorized        = "Unauthorized"
	textRequestUnauthorized = "Request unauthorized"
	textInvalidToken        = "invalid access token"
)

func (a *API) serveAuth() {
	who := access{public: true}
	a.route("/auth", who, methods{http.MethodGet: unstored(a.login)})
	a.route("/auth/test", who, methods{http.MethodGet: unstored(a.testLogin)})
	a.route("/auth/token", who, methods{http.MethodPost: unstored(a.refresh)})
	a.route("/auth/logout", who, methods{http.MethodPost: unstored(a.logout)})
}

// unstored tells browsers and proxies not to store the answer, which may have tokens in it.
func unstored(h func(*response, *request) error) func(*response, *request) error {
	return func(w *response, r *request) error {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Pragma", "no-cache")
		return h(w, r)
	}
}

// issuer returns the URL under which the client knows this backend. The client sends its refresh tokens there.
func issuer(r *request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// signIn checks a name and password, within the time for an answer.
func (a *API) signIn(r *request, user, password string) (*auth.Identity, error) {
	ctx, cancel := context.WithTimeout(r.Context(), a.opts.WriteTimeout)
	defer cancel()
	return a.opts.Auth.SignIn(ctx, clientaddr.Host(r.RemoteAddr), user, password)
}

func (a *API) login(w *response, r *request) error {
	user, password, ok := r.BasicAuth()
	if !ok {
		http.Error(w, textRequestUnauthorized, http.StatusUnauthorized)
		return nil
	}
	id, err := a.signIn(r, user, password)
	if err != nil {
		return a.refuse(w, err, textUnauthorized)
	}
	tokens, err := a.opts.Auth.Issue(r.Context(), id, issuer(r))
	if err != nil {
		return err
	}
	return w.object(tokens)
}

func (a *API) testLogin(w *response, r *request) error {
	user, password, ok := r.BasicAuth()
	if !ok {
		http.Error(w, textRequestUnauthorized, http.StatusUnauthorized)
		return nil
	}
	if _, err := a.signIn(r, user, password); err != nil {
		return a.refuse(w, err, textRequestUnauthorized)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (a *API) refresh(w *response, r *request) error {
	access, refresh, ok := a.pair(w, r)
	if !ok {
		return nil
	}
	tokens, err := a.opts.Auth.Refresh(r.Context(), access, refresh, issuer(r))
	if err != nil {
		return a.refuse(w, err, textRequestUnauthorized)
	}
	return w.object(tokens)
}

func (a *API) logout(w *response, r *request) error {
	access, refresh, ok := a.pair(w, r)
	if !ok {
		return nil
	}
	if err := a.opts.Auth.Logout(r.Context(), access, refresh); err != nil {
		return a.refuse(w, err, textRequestUnauthorized)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// refreshToken is the body of a request that trades a refresh token, or ends a sign-in.
type refreshToken struct {
	RefreshToken string `json:"refresh_token"`
}

// pair returns the two tokens of a sign-in, or answers that they are missing.
func (a *API) pair(w *response, r *request) (access, refresh string, ok bool) {
	header := r.Header.Get("Authorization")
	if strings.HasPrefix(header, "Basic ") {
		http.Error(w, textInvalidToken, http.StatusBadRequest)
		return "", "", false
	}
	access, ok = strings.CutPrefix(header, "Bearer ")
	if !ok {
		http.Error(w, textRequestUnauthorized, http.StatusUnauthorized)
		return "", "", false
	}
	var body refreshToken
	if err := json.NewDecoder(a.body(w, r)).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return "", "", false
	}
	return access, body.RefreshToken, true
}

// refuse answers with the reason why a sign-in or token was refused; wrong is the text for wrong credentials.
func (a *API) refuse(w *response, err error, wrong string) error {
	var guessing *auth.GuessingError
	switch {
	case errors.Is(err, auth.ErrCredentials), errors.Is(err, auth.ErrToken):
		http.Error(w, wrong, http.StatusUnauthorized)
	case errors.Is(err, auth.ErrSignInOver):
		http.Error(w, textUnauthorized, http.StatusUnauthorized)
	case errors.Is(err, auth.ErrReused):
		http.Error(w, textInvalidToken, http.StatusBadRequest)
	case errors.As(err, &guessing):
		w.Header().Set("Retry-After", strconv.Itoa(int(guessing.Wait/time.Second)))
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case errors.Is(err, auth.ErrBusy), errors.Is(err, auth.ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		return err
	}
	return nil
}

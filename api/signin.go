package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const (
	authentication = "/api/enterprise/authentication/v2/"
	oidcPath       = authentication + "oidc/"
	// flowCookie, followed by the beginning of a flow's id, names the cookie of a flow. One browser may have several
	// flows.
	flowCookie = "lapwing-signin-"
)

// serveSignIn adds the sign-in providers, and the sign-in in a browser: authorize redirects to the provider, which
// redirects to callback, which redirects to the client with a code. token trades the code for tokens.
func (a *API) serveSignIn() {
	providers := &kind[resource.AuthProvider]{
		api: a, Kind: config.AuthProviders,
		view: func(p *resource.AuthProvider) any { return p.Redacted() },
	}
	a.route(authentication+"authproviders", access{resource: "authproviders"}, methods{http.MethodGet: providers.list})
	a.route(authentication+"authproviders/{name}", access{resource: "authproviders", name: namePath, dryRun: true}, methods{
		http.MethodGet: providers.get, http.MethodPut: a.putProvider, http.MethodDelete: providers.delete,
	})
	who := access{public: true}
	a.route(oidcPath+"authorize", who, methods{http.MethodGet: unstored(a.beginSignIn)})
	a.route(oidcPath+"callback", who, methods{http.MethodGet: unstored(a.finishSignIn)})
	a.route(oidcPath+"token", who, methods{http.MethodPost: unstored(a.redeemSignIn)})
	a.route("/api/lapwing/v1/auth/providers", who, methods{http.MethodGet: a.listSignIns})
}

// putProvider writes a provider. Placeholders for secrets keep the stored secrets.
func (a *API) putProvider(w *response, r *request) error {
	obj := new(resource.AuthProvider)
	if err := a.decode(w, r, obj); err != nil {
		return err
	}
	name := r.PathValue("name")
	if obj.Metadata.Name != name {
		return nameMismatch(obj.Metadata.Name, name)
	}
	obj.Metadata.CreatedBy = r.user.User
	for {
		_, err := config.Update(r.Context(), a.opts.Config, config.AuthProviders, "", name,
			func(old *resource.AuthProvider) (*resource.AuthProvider, error) {
				next := obj.WithSecrets(old)
				return next, validProvider(next)
			})
		if errors.Is(err, config.ErrNotFound) {
			if err := validProvider(obj); err != nil {
				return err
			}
			err = config.Create(r.Context(), a.opts.Config, config.AuthProviders, obj)
			if errors.Is(err, config.ErrExists) {
				continue
			}
		}
		if err != nil {
			return err
		}
		if text := missingFiles(obj); text != "" {
			w.warn(text)
		}
		return w.empty(http.StatusOK)
	}
}

// missingFiles returns a warning about files that a directory's servers need and that are missing on this backend. They
// may come later.
func missingFiles(p *resource.AuthProvider) string {
	if p.Directory == nil {
		return ""
	}
	var missing []string
	for i := range p.Directory.Servers {
		s := &p.Directory.Servers[i]
		if s.Security == "insecure" {
			continue // its files are not used
		}
		for _, f := range []struct{ field, name string }{
			{"trusted_ca_file", s.TrustedCAFile}, {"client_cert_file", s.ClientCertFile}, {"client_key_file", s.ClientKeyFile},
		} {
			if reason := unusable(f.name); reason != "" {
				missing = append(missing, fmt.Sprintf("servers[%d].%s: %s %s on this backend; until it can be read, sign-ins through this server fail",
					i, f.field, resource.Short(f.name), reason))
			}
		}
	}
	return strings.Join(missing[:min(len(missing), maxMissing)], "; ")
}

// maxMissing bounds the files that a warning names.
const maxMissing = 5

// unusable returns the reason why a file cannot be read, or "" if there is none or name is "".
func unusable(name string) string {
	if name == "" {
		return ""
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case err != nil:
		return "cannot be found"
	case !info.Mode().IsRegular():
		return "is not a regular file"
	}
	f, err := os.Open(name)
	if err != nil {
		return "cannot be read"
	}
	_ = f.Close()
	return ""
}

func validProvider(p *resource.AuthProvider) error {
	if err := p.Validate(); err != nil {
		return refused(resourceInvalid, err)
	}
	return nil
}

// signInOption is a provider as the sign-in page shows it.
type signInOption struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Title string `json:"title"`
}

// listSignIns lists the providers for sign-ins in a browser.
func (a *API) listSignIns(w *response, _ *request) error {
	options := []signInOption{}
	for _, p := range a.opts.Auth.OIDCProviders() {
		option := signInOption{Name: p.Metadata.Name, Type: p.Type, Title: p.OIDC.Provider}
		if option.Title == "" {
			option.Title = option.Name
		}
		options = append(options, option)
	}
	return w.object(options)
}

// beginSignIn redirects a browser to a provider. Its query has the fields of auth.Flow.
func (a *API) beginSignIn(w *response, r *request) error {
	q := r.URL.Query()
	home := issuer(r) + oidcPath + "callback"
	location, id, sealed, err := a.opts.Auth.BeginFlow(r.Context(), auth.Flow{
		Provider: q.Get("provider"), Callback: q.Get("callback"), State: q.Get("state"), Challenge: q.Get("challenge"),
		RedirectURI: home,
	})
	if err != nil {
		return a.refuseFlow(w, err)
	}
	to, err := url.Parse(location)
	if err != nil {
		return fmt.Errorf("send browser to provider: %w", err)
	}
	back, err := url.Parse(to.Query().Get("redirect_uri"))
	if err != nil {
		return fmt.Errorf("send browser to provider: %w", err)
	}
	// The browser returns to the host in the redirect URI, and only sends a cookie that this host set. So redirect it
	// there once. Behind a proxy, we may never see that host.
	if back.Host != r.Host && q.Get("moved") == "" {
		q.Set("moved", "1")
		there := url.URL{Scheme: back.Scheme, Host: back.Host,
			Path: strings.TrimSuffix(back.Path, "callback") + "authorize", RawQuery: q.Encode()}
		http.Redirect(w, r.Request, there.String(), http.StatusFound)
		return nil
	}
	http.SetCookie(w, cookie(id, sealed, int(auth.FlowLife.Seconds()), back))
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r.Request, location, http.StatusFound)
	return nil
}

// cookie binds a flow to the browser that began it. With Lax the browser sends it when the provider redirects back.
func cookie(id, value string, seconds int, back *url.URL) *http.Cookie {
	return &http.Cookie{
		Name: flowCookie + id[:min(8, len(id))], Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: back.Scheme == "https", SameSite: http.SameSiteLaxMode,
	}
}

// finishSignIn serves the redirect from a provider and redirects to the client.
func (a *API) finishSignIn(w *response, r *request) error {
	w.Header().Set("Referrer-Policy", "no-referrer")
	q := r.URL.Query()
	id := q.Get("state")
	kept, err := r.Cookie(flowCookie + id[:min(8, len(id))])
	if err != nil {
		http.Error(w, "This sign-in was not begun in this browser, or took too long. Begin again.", http.StatusBadRequest)
		return nil
	}
	http.SetCookie(w, cookie(id, "", -1, &url.URL{Scheme: scheme(r)}))
	callback, err := a.opts.Auth.FinishFlow(r.Context(), kept.Value, id, q.Get("code"), q.Get("error"))
	if err != nil {
		return a.refuseFlow(w, err)
	}
	http.Redirect(w, r.Request, callback, http.StatusFound)
	return nil
}

func scheme(r *request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// signInCode is the body of a request that trades the code of a browser's sign-in for tokens.
type signInCode struct {
	Code     string `json:"code"`
	Verifier string `json:"verifier"` // the sign-in was begun with its hash
}

// redeemSignIn trades the code of a browser's sign-in for tokens. With a refresh token instead, it works like
// /auth/token.
func (a *API) redeemSignIn(w *response, r *request) error {
	if r.Header.Get("Authorization") != "" {
		return a.refresh(w, r)
	}
	var body signInCode
	if err := a.decode(w, r, &body); err != nil {
		return err
	}
	id, err := a.opts.Auth.Redeem(r.Context(), body.Code, body.Verifier)
	if err != nil {
		return a.refuse(w, err, textUnauthorized)
	}
	tokens, err := a.opts.Auth.Issue(r.Context(), id, issuer(r))
	if err != nil {
		return err
	}
	return w.object(tokens)
}

// refuseFlow answers a browser whose sign-in cannot go on.
func (a *API) refuseFlow(w *response, err error) error {
	var bad *auth.FlowError
	switch {
	case errors.As(err, &bad):
		http.Error(w, bad.Reason, http.StatusBadRequest)
	case errors.Is(err, auth.ErrToken):
		http.Error(w, "This sign-in was not begun in this browser, or took too long. Begin again.", http.StatusBadRequest)
	case errors.Is(err, auth.ErrNoProvider):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		return a.refuse(w, err, textUnauthorized)
	}
	return nil
}

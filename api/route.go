package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
)

// request is a request with who sent it.
type request struct {
	*http.Request
	user   *auth.Identity  // nil on public routes
	permit auth.Permission // what the roles say; zero on public and open routes
}

// methods are the handlers of one path. Its other methods are answered 405.
type methods map[string]func(w *response, r *request) error

// access says who may use a path.
type access struct {
	public bool // nobody need sign in
	always bool // it is answered while the backend starts
	open   bool // all who signed in may; the handler decides what they see

	resource string                  // as in roles
	name     func(r *request) string // the object's, as in roles; nil for collections
	list     bool                    // GET gives a list, although the path has a name
	self     bool                    // about oneself it is another resource, which everybody has
	labels   bool                    // the handler keeps roles that are limited by labels to their objects
	long     bool                    // a write may take as long as its client waits
}

// route is one path of the API.
type route struct {
	pattern string
	access
	methods
}

// selfResource stands in roles for the own user.
const selfResource = "localselfuser"

// attributes are what the roles are asked.
func (c *access) attributes(r *request) auth.Attributes {
	at := auth.Attributes{Resource: c.resource, Namespace: r.PathValue("namespace")}
	if c.name != nil {
		at.Name = c.name(r)
	}
	switch r.Method {
	case http.MethodPost:
		at.Verb = "create"
	case http.MethodPut, http.MethodPatch:
		at.Verb = "update"
	case http.MethodDelete:
		at.Verb = "delete"
	default:
		at.Verb = "get"
		if c.name == nil || c.list {
			at.Verb = "list"
		}
	}
	if c.self && at.Name == r.user.User && r.user.Origin.Local() {
		at.Resource = selfResource
	}
	if at.Namespace == allNamespaces {
		at.Namespace = ""
	}
	return at
}

// allNamespaces stands in lapwing's own paths for all namespaces. It is a valid name, but one nobody has wanted.
const allNamespaces = "-"

// namePath is the object's name in paths of kinds.
func namePath(r *request) string { return r.PathValue("name") }

// route adds a path.
func (a *API) route(pattern string, who access, m methods) {
	a.routes = append(a.routes, route{pattern, who, m})
	allow := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	a.mux.HandleFunc(pattern, func(hw http.ResponseWriter, hr *http.Request) {
		w, r := hw.(*response), &request{Request: hr}
		handler, ok := m[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if err := a.admit(r, &who); err != nil {
			a.fail(w, r, err)
			return
		}
		if r.Method != http.MethodGet {
			ctx := r.Context()
			if r.user != nil {
				ctx = config.WithAuthor(ctx, r.author())
			}
			if !who.long {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, a.opts.WriteTimeout)
				defer cancel()
			}
			r.Request = r.WithContext(ctx)
		}
		if err := handler(w, r); err != nil {
			a.fail(w, r, err)
		}
	})
}

// admit finds out who sent the request and whether they may.
func (a *API) admit(r *request, who *access) error {
	if !who.public {
		if err := a.identify(r); err != nil {
			return err
		}
		connlimit.Prove(r.Context())
	}
	if !who.always {
		if err := a.gate(); err != nil {
			return err
		}
	}
	if who.public || who.open {
		return nil
	}
	r.permit = a.opts.Auth.Permit(r.user, who.attributes(r))
	if r.permit.Whole() || who.labels && !r.permit.Denied() {
		return nil
	}
	return errDenied
}

// maxAuditedPath is the longest path in the audit log, in bytes. It has room for three names of the longest kind.
const maxAuditedPath = 1024

// author is who is named in the audit log.
func (r *request) author() config.Author {
	path := shownPath(r.URL.Path)
	if len(path) > maxAuditedPath {
		path = strings.ToValidUTF8(path[:maxAuditedPath], "") + "…"
	}
	return config.Author{User: r.user.User, Remote: r.RemoteAddr, Request: r.Method + " " + path}
}

func (a *API) identify(r *request) (err error) {
	if id, ok := acting(r.Context()); ok {
		if !a.opts.Auth.Active(id) {
			return errInvalidCredentials
		}
		r.user = id
		return nil
	}
	header := r.Header.Get("Authorization")
	if key, ok := strings.CutPrefix(header, "Key "); ok {
		r.user, err = a.opts.Auth.APIKey(key)
	} else if token, ok := strings.CutPrefix(header, "Bearer "); ok {
		r.user, err = a.opts.Auth.Bearer(r.Context(), token)
	} else {
		return errBadCredentials
	}
	if errors.Is(err, auth.ErrToken) {
		return errInvalidCredentials
	}
	if err == nil && !a.opts.AgentAccess {
		r.user = r.user.WithoutAgents()
	}
	return err
}

// gate is open from the first time on that the backend is ready: what was once there is not taken away from people who
// have to find out what is wrong.
func (a *API) gate() error {
	if a.started.Load() {
		return nil
	}
	if err := a.opts.Ready(); err != nil {
		return &startingError{err}
	}
	a.started.Store(true)
	return nil
}

package api

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/internal/connlimit"
)

// request is a request, with its user's act.
type request struct {
	*http.Request
	*act
	wall bool // the sender is a page with an API key in place of a sign-in
}

// methods are the handlers of one path. Its other methods are answered 405.
type methods map[string]func(w *response, r *request) error

// access says who may use a path.
type access struct {
	public bool // no sign-in needed
	always bool // also while the backend starts
	open   bool // for every user who has signed in; the handler decides what the user sees

	resource  string                  // as in roles
	name      func(r *request) string // of the object, as in roles; nil for collections
	list      bool                    // GET returns a list, although the path has a name
	self      bool                    // for the own user it is selfResource, which all users have
	labels    bool                    // the handler keeps roles that are limited by labels to their objects
	long      bool                    // a write has no time limit while its client waits
	reads     bool                    // POST changes nothing
	dryRun    bool                    // POST, PUT and PATCH change nothing in a dry run
	dryDelete bool                    // DELETE changes nothing in a dry run
}

// route is one path of the API.
type route struct {
	pattern string
	access
	methods
}

// selfResource is the resource in roles for the own user.
const selfResource = "localselfuser"

// attributes returns the attributes for a check of the roles.
func (c *access) attributes(r *request) auth.Attributes {
	at := auth.Attributes{Resource: c.resource, Namespace: roleNamespace(r.PathValue("namespace"))}
	if c.name != nil {
		at.Name = c.name(r)
	}
	if at.Verb = verbOf(r.Method); at.Verb == "get" && (c.name == nil || c.list) {
		at.Verb = "list"
	}
	if c.self && at.Name == r.user.User && r.user.Origin.Local() {
		at.Resource = selfResource
	}
	return at
}

// allNamespaces means all namespaces in lapwing's own paths. It is a valid name, but an unlikely one.
const allNamespaces = "-"

// namePath returns the object's name in paths of kinds.
func namePath(r *request) string { return r.PathValue("name") }

// route adds a path.
func (a *API) route(pattern string, who access, m methods) {
	a.routes = append(a.routes, route{pattern, who, m})
	allow := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
	a.mux.HandleFunc(pattern, func(hw http.ResponseWriter, hr *http.Request) {
		w, r := hw.(*response), &request{Request: hr, act: &act{
			method: hr.Method, path: hr.URL.Path, remote: hr.RemoteAddr, header: hr.Header,
			namespace: hr.PathValue("namespace"), name: hr.PathValue("name"),
		}}
		handler, ok := m[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if err := dryRunnable(hr.Context(), hr.Method, &who); err != nil {
			a.fail(w, r, err)
			return
		}
		if r.writes(&who) && !who.long { // waiting for the cluster counts, too
			ctx, cancel := context.WithTimeout(hr.Context(), a.opts.WriteTimeout)
			defer cancel()
			r.Request = hr.WithContext(ctx)
		}
		if err := a.admit(r, &who); err != nil {
			a.fail(w, r, err)
			return
		}
		err := a.perform(r.Context(), r.act, &who, who.attributes(r), func(ctx context.Context) error {
			if r.Method != http.MethodGet {
				r.Request = r.WithContext(ctx)
			}
			if r.old {
				w.advise(cutOff)
			}
			return handler(w, r)
		})
		r.Request = hr // the deadline of a write has ended the other context
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

// rejoinTimeout bounds rejoined. A member that stood still has its lease again within a second or two.
const rejoinTimeout = 5 * time.Second

// behind reports whether this backend was cut off or stood still, and may not have what other members have written.
func (a *API) behind() bool {
	return a.opts.Cluster.CutOff() || a.opts.Cluster.Revision() > a.opts.Config.Snapshot().Revision()
}

// rejoined waits until this backend, which is behind, has its lease and the newest definitions, and identifies the sender
// of a write anew: users, rights and objects may have changed at the other members. A backend that keeps its lease and
// does not get the definitions, because their stream has no leader, goes on with what it has: events can be written.
func (a *API) rejoined(r *request) error {
	if !a.opts.Cluster.CutOff() {
		a.catchUp(r.Context())
		return a.identify(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), rejoinTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for a.opts.Cluster.CutOff() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errCutOff
		}
	}
	if err := a.opts.Config.CatchUp(ctx); err != nil {
		return errCutOff
	}
	return a.identify(r)
}

// cutOff is the warning of an answer that may be old.
const cutOff = "this backend does not hear a majority of the cluster's members, or has not yet read what they have written: " +
	"the answer may be old"

// writes reports whether a request may change something.
func (r *request) writes(who *access) bool {
	return r.Method != http.MethodGet && !who.public && !who.reads
}

// admit identifies the sender of a request, and checks whether the backend accepts it yet. A write to a backend that is
// behind waits; its sender may be one that this backend does not know yet.
func (a *API) admit(r *request, who *access) error {
	var err error
	if !who.public {
		if err = a.identify(r); err != nil && err != errInvalidCredentials {
			return err
		}
	}
	if !who.always {
		if closed := a.gate(); closed != nil {
			return cmp.Or(err, closed)
		}
	}
	if r.wall && r.writes(who) {
		return errWall
	}
	if r.writes(who) && a.behind() {
		err = a.rejoined(r)
	}
	if err == nil && !who.public {
		connlimit.Prove(r.Context())
	}
	return err
}

// identify finds the sender of a request.
func (a *API) identify(r *request) (err error) {
	header := r.Header.Get("Authorization")
	if key, ok := strings.CutPrefix(header, "Key "); ok {
		r.user, err = a.opts.Auth.APIKey(key)
	} else if token, ok := strings.CutPrefix(header, "Bearer "); ok {
		r.user, err = a.opts.Auth.Bearer(r.Context(), token)
	} else if token := pageToken(r); token != "" && header == "" {
		r.user, err = a.opts.Auth.Bearer(r.Context(), token)
	} else if key := pageKey(r); key != "" && header == "" {
		r.user, err = a.opts.Auth.APIKey(key)
		r.wall = true
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

// gate is open once the backend was ready. It does not close again: people need the API to diagnose problems.
func (a *API) gate() error {
	if a.started.Load() {
		return nil
	}
	if err := a.opts.Serves(); err != nil {
		return &startingError{err}
	}
	a.started.Store(true)
	return nil
}

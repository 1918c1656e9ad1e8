package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// act is one thing that one user does to one object. A request is one act; bulk and prune do many. Every writing
// function gets the user's data from the act, so it works the same for all callers.
type act struct {
	user   *auth.Identity  // nil on public routes
	permit auth.Permission // the roles' answer; zero on public and open routes
	header http.Header     // with the preconditions; nil for none

	method, path string // for the audit log: of the request, or of an equivalent one
	remote       string // address of the client

	namespace, name string // of the object; "" where a path has none
	warning         string // a text about the object for the user
	unseen          string // says which names in the object were not looked at; "" if all were
	change          string // what the write did, as in config.Author; "" if it wrote no definition
	old             bool   // the answer to a GET may be older than what other members have
}

// maxAuditedPath is the longest path in the audit log, in bytes. It has space for three names of maximal length.
const maxAuditedPath = 1024

// author returns the act's user for the audit log.
func (t *act) author() config.Author {
	path := shownPath(t.path)
	if len(path) > maxAuditedPath {
		path = strings.ToValidUTF8(path[:maxAuditedPath], "") + "…"
	}
	return config.Author{User: t.user.User, Remote: t.remote, Request: t.method + " " + path, Change: &t.change}
}

// perform does every act: it checks the roles, sets author and deadline of a write, and calls do.
func (a *API) perform(ctx context.Context, t *act, who *access, at auth.Attributes, do func(context.Context) error) error {
	if !who.public && !who.open {
		if err := a.allow(t, who, at); err != nil {
			return err
		}
	}
	if t.method == http.MethodGet {
		t.old = !who.public && !a.catchUp(ctx)
		return do(ctx)
	}
	if t.user != nil {
		ctx = config.WithAuthor(ctx, t.author())
	}
	if !who.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.opts.WriteTimeout)
		defer cancel()
	}
	var behind error // why the definitions here may be old
	if t.conditional() {
		behind = a.agree(ctx, a.opts.Config.CatchUp)
	}
	err := do(ctx)
	if err == nil {
		return nil
	}
	if e, _ := classify(err); e == errPrecondition || e == errExists { // because of what the definitions are
		if !t.conditional() {
			behind = a.agree(ctx, a.opts.Config.CatchUp)
		}
		if behind != nil || a.opts.Cluster.CutOff() { // a leader that is cut off answers for a while
			return errBehind
		}
		_ = a.agree(ctx, a.opts.Config.Shared)
	}
	return err
}

// catchUp waits, but not for long, until this backend has the definitions that other members have: a client may have
// written through them, and this backend may have been away. It reports whether this backend has them, and knows that.
func (a *API) catchUp(ctx context.Context) bool {
	if newest := a.opts.Cluster.Revision(); newest > a.opts.Config.Snapshot().Revision() {
		ctx, cancel := a.waiting(ctx)
		defer cancel()
		if err := a.opts.Config.WaitRevision(ctx, newest); err != nil {
			return false
		}
	}
	return !a.opts.Cluster.CutOff()
}

// agreeTimeout bounds the waits of agree.
const agreeTimeout = time.Second

// agree waits for other members' definitions, so that a write is not refused because of old ones, and a client that was
// refused does not read older ones next.
func (a *API) agree(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	return wait(ctx)
}

// allow checks the roles, and stores the permission in the act.
func (a *API) allow(t *act, who *access, at auth.Attributes) error {
	t.permit = a.opts.Auth.Permit(t.user, at)
	if t.permit.Whole() || who.labels && !t.permit.Denied() {
		return nil
	}
	if t.header.Get(pageHeader) != "" {
		return lacks(at.Verb, at.Resource) // the page says which right is missing
	}
	return errDenied
}

// deed is an act without a request of its own. bulk and prune make them.
type deed struct {
	method, path    string // of an equivalent request
	resource        string // as in roles, with the names
	namespace, name string
	do              func(ctx context.Context, t *act) error
}

// actAs does a deed for the user and the client of a request, like a request for it alone. An error is the answer to
// that request.
func (a *API) actAs(ctx context.Context, by *act, d *deed) error {
	if d.do == nil { // no path has the method
		return &apiError{status: http.StatusMethodNotAllowed}
	}
	t := &act{user: by.user, remote: by.remote, method: d.method, path: d.path, namespace: d.namespace, name: d.name}
	at := auth.Attributes{Verb: verbOf(d.method), Resource: d.resource, Namespace: roleNamespace(d.namespace), Name: d.name}
	return a.perform(ctx, t, &access{labels: true}, at, func(ctx context.Context) error {
		err := d.do(ctx, t)
		if err == nil {
			return nil
		}
		e, known := classify(err)
		if !known && ctx.Err() == nil {
			a.rare.Error("request failed", d.resource, "method", d.method, "path", shownPath(d.path), "err", err)
		}
		return e
	})
}

// roleNamespace returns the namespace for a question to the roles.
func roleNamespace(namespace string) string {
	if namespace == allNamespaces {
		return ""
	}
	return namespace
}

// verbOf returns the verb in roles for the method of a write.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut, http.MethodPatch:
		return "update"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}

// definition has the functions that write one object of a kind, independent of its Go type.
type definition struct {
	like  any                                                       // an object without content, as selectors see it
	erase func(ctx context.Context, t *act, along url.Values) error // along has the query parameters of the DELETE
	amend func(ctx context.Context, t *act, patch []byte) error     // applies a merge patch; nil if the kind has no PATCH
}

// objectPath returns the path of an object of a kind.
func objectPath(k *resource.Kind, namespace, name string) string {
	if k.Namespaced {
		return k.Prefix() + "namespaces/" + namespace + "/" + k.Plural + "/" + name
	}
	return k.Prefix() + k.Plural + "/" + name
}

// erasing returns the deed that deletes a definition, like a DELETE without a query.
func (a *API) erasing(k *resource.Kind, namespace, name string) *deed {
	return &deed{
		method: http.MethodDelete, path: objectPath(k, namespace, name), resource: k.Role, namespace: namespace, name: name,
		do: func(ctx context.Context, t *act) error { return a.definitions[k.Role].erase(ctx, t, nil) },
	}
}

// amending returns the deed that applies a merge patch to a definition.
func (a *API) amending(k *resource.Kind, namespace, name string, patch []byte) *deed {
	d := &deed{method: http.MethodPatch, path: objectPath(k, namespace, name), resource: k.Role, namespace: namespace, name: name}
	if amend := a.definitions[k.Role].amend; amend != nil {
		d.do = func(ctx context.Context, t *act) error { return amend(ctx, t, patch) }
	}
	return d
}

func eventPath(key state.Key) string {
	return core + "namespaces/" + key.Namespace + "/events/" + key.Entity + "/" + key.Check
}

// eventDeed returns a deed on an event.
func eventDeed(method string, key state.Key, do func(context.Context, *act) error) *deed {
	return &deed{
		method: method, path: eventPath(key), resource: "events", namespace: key.Namespace, name: key.Entity + "/" + key.Check,
		do: do,
	}
}

// ackDeed returns a deed on the acknowledgement of an event, which is a silence.
func ackDeed(method string, key state.Key, do func(context.Context, *act) error) *deed {
	return &deed{
		method: method, path: ours + strings.TrimPrefix(eventPath(key), core) + "/ack",
		resource: config.Silences.String(), namespace: key.Namespace, name: ackName(key), do: do,
	}
}

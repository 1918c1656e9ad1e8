package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// act is one thing that one user does to one object. Each request is one; bulk and prune do many. All that writes takes
// what it needs to know of its user from the act, so a write is the same whichever way it came.
type act struct {
	user   *auth.Identity  // nil on public routes
	permit auth.Permission // what the roles say; zero on public and open routes
	header http.Header     // with the preconditions; nil for none

	method, path string // for the audit log: of the request, or of the one that would do the same
	remote       string // address of the client

	namespace, name string // of the object; "" where a path has none
	warning         string // what the user should know of the object
}

// maxAuditedPath is the longest path in the audit log, in bytes. It has room for three names of the longest kind.
const maxAuditedPath = 1024

// author is the act's user in the audit log.
func (t *act) author() config.Author {
	path := shownPath(t.path)
	if len(path) > maxAuditedPath {
		path = strings.ToValidUTF8(path[:maxAuditedPath], "") + "…"
	}
	return config.Author{User: t.user.User, Remote: t.remote, Request: t.method + " " + path}
}

// perform is the way of every act: the roles are asked, a write gets its author and its time, and do does it.
func (a *API) perform(ctx context.Context, t *act, who *access, at auth.Attributes, do func(context.Context) error) error {
	if !who.public && !who.open {
		if err := a.allow(t, who, at); err != nil {
			return err
		}
	}
	if t.method == http.MethodGet {
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
	return do(ctx)
}

// allow asks the roles, and keeps their answer in the act.
func (a *API) allow(t *act, who *access, at auth.Attributes) error {
	t.permit = a.opts.Auth.Permit(t.user, at)
	if t.permit.Whole() || who.labels && !t.permit.Denied() {
		return nil
	}
	return errDenied
}

// deed is an act without a request of its own, as bulk and prune do them.
type deed struct {
	method, path    string // of the request that would do the same
	resource        string // as the roles are asked, with the names
	namespace, name string
	do              func(ctx context.Context, t *act) error
}

// actAs does a deed for the user and the client of a request, as a request for it alone would be done. An error is what
// that request would be answered.
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

// roleNamespace is a namespace as the roles are asked for it.
func roleNamespace(namespace string) string {
	if namespace == allNamespaces {
		return ""
	}
	return namespace
}

// verbOf is what the roles are asked of a request that writes.
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

// definition is how objects of one kind are written one by one, whatever their Go type.
type definition struct {
	erase func(ctx context.Context, t *act, along url.Values) error // along is as in the query of a DELETE
	amend func(ctx context.Context, t *act, patch []byte) error     // with a merge patch; nil if there is no PATCH
}

// objectPath is the path of an object of a kind.
func objectPath(k *resource.Kind, namespace, name string) string {
	if k.Namespaced {
		return k.Prefix() + "namespaces/" + namespace + "/" + k.Plural + "/" + name
	}
	return k.Prefix() + k.Plural + "/" + name
}

// erasing deletes a definition, with what a DELETE without a query deletes along with it.
func (a *API) erasing(k *resource.Kind, namespace, name string) *deed {
	return &deed{
		method: http.MethodDelete, path: objectPath(k, namespace, name), resource: k.Role, namespace: namespace, name: name,
		do: func(ctx context.Context, t *act) error { return a.definitions[k.Role].erase(ctx, t, nil) },
	}
}

// amending applies a merge patch to a definition.
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

// eventDeed is something done to an event.
func eventDeed(method string, key state.Key, do func(context.Context, *act) error) *deed {
	return &deed{
		method: method, path: eventPath(key), resource: "events", namespace: key.Namespace, name: key.Entity + "/" + key.Check,
		do: do,
	}
}

// ackDeed is something done to the acknowledgement of an event, which is a silence.
func ackDeed(method string, key state.Key, do func(context.Context, *act) error) *deed {
	return &deed{
		method: method, path: ours + strings.TrimPrefix(eventPath(key), core) + "/ack",
		resource: config.Silences.String(), namespace: key.Namespace, name: ackName(key), do: do,
	}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

type namespaces struct {
	kind[resource.Namespace]
}

func (a *API) serveNamespaces() {
	n := &namespaces{kind[resource.Namespace]{api: a, Kind: config.Namespaces}}
	who := access{resource: n.String(), name: namePath}
	// The namespaces that a user sees follow from all roles of the user, so no single check decides.
	a.route(core+"namespaces", access{open: true, dryRun: true}, methods{
		http.MethodGet:  n.list,
		http.MethodPost: a.authorized(access{resource: n.String()}, n.create),
	})
	a.route(core+"namespaces/{name}", access{open: true, dryRun: true}, methods{
		http.MethodGet:    n.get,
		http.MethodPut:    a.authorized(who, n.put),
		http.MethodPatch:  a.authorized(who, n.patch),
		http.MethodDelete: a.authorized(who, n.delete),
	})
}

// authorized checks the roles for one method of a path that is otherwise open.
func (a *API) authorized(who access, handler func(*response, *request) error) func(*response, *request) error {
	return func(w *response, r *request) error {
		if err := a.allow(r.act, &who, who.attributes(r)); err != nil {
			return err
		}
		return handler(w, r)
	}
}

func (n *namespaces) list(w *response, r *request) error {
	p := pageOf(r, (*resource.Namespace)(nil))
	visible := n.api.opts.Auth.VisibleNamespaces(r.user)
	var seen iter.Seq[*resource.Namespace] = func(yield func(*resource.Namespace) bool) {
		for ns := range n.objects(r, p) {
			if visible.Has(ns.Name) && !yield(ns) {
				return
			}
		}
	}
	return writeList(w, p, seen, n.show, n.token)
}

func (n *namespaces) get(w *response, r *request) error {
	if !n.api.opts.Auth.VisibleNamespaces(r.user).Has(r.PathValue("name")) {
		return errDenied
	}
	return n.kind.get(w, r)
}

func (n *namespaces) create(w *response, r *request) error {
	ns := new(resource.Namespace)
	if err := n.api.decode(w, r, ns); err != nil {
		return err
	}
	if err := n.complete(r.act, ns); err != nil {
		return err
	}
	if _, ok := config.Get(n.api.opts.Config.Snapshot(), config.Namespaces, "", ns.Name); ok {
		return errExists
	}
	if err := n.furnish(r, ns.Name); err != nil {
		return err
	}
	if err := config.Create(r.Context(), n.api.opts.Config, n.Kind, ns); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

func (n *namespaces) put(w *response, r *request) error {
	ns := new(resource.Namespace)
	if err := n.api.decode(w, r, ns); err != nil {
		return err
	}
	if err := n.complete(r.act, ns); err != nil {
		return err
	}
	if _, ok := config.Get(n.api.opts.Config.Snapshot(), config.Namespaces, "", ns.Name); ok {
		return w.empty(http.StatusCreated) // it has nothing but a name
	}
	if err := n.furnish(r, ns.Name); err != nil {
		return err
	}
	if err := config.Put(r.Context(), n.api.opts.Config, n.Kind, ns); err != nil {
		return err
	}
	return w.empty(http.StatusCreated)
}

// furnish writes the definitions of every namespace. It comes before the namespace: when the namespace exists, they
// must exist.
func (n *namespaces) furnish(r *request, name string) error {
	role, binding := auth.PipelineAccess(name, r.user.User)
	if err := config.Create(r.Context(), n.api.opts.Config, config.Roles, role); err != nil && !errors.Is(err, config.ErrExists) {
		return err
	}
	if err := config.Create(r.Context(), n.api.opts.Config, config.RoleBindings, binding); err != nil && !errors.Is(err, config.ErrExists) {
		return err
	}
	return nil
}

// delete deletes a namespace that has only accessories, as Sensu does; with ?cascade=true it deletes all contents too.
// The namespace goes last: anything left over would appear in the next namespace of that name.
func (n *namespaces) delete(w *response, r *request) error {
	ns, err := n.find(r.act)
	if err != nil {
		return err
	}
	if err := r.precondition(n.show(ns)); err != nil {
		return err
	}
	switch asked := r.URL.Query().Get("cascade"); asked {
	case "", "false":
	case "true":
		w.patient()
		ctx, cancel := patiently(r.Context())
		defer cancel()
		r.Request = r.WithContext(ctx)
		if err := n.clearNamespace(ctx, r.act, ns.Name); err != nil {
			return err
		}
	default:
		return invalid("cascade must be true or false, not %q", asked)
	}
	if n.holdsAny(ns.Name) {
		return invalid("%snamespace is not empty", resourceInvalid)
	}
	if err := n.clear(r.Context(), ns.Name); err != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	return n.kind.delete(w, r)
}

// clear deletes the accessories of a namespace, and its silences: all have expired, see delete.
func (n *namespaces) clear(ctx context.Context, name string) error {
	sn := n.api.opts.Config.Snapshot()
	var errs []error
	for _, k := range append(accessories(), resource.KindFor[resource.Silenced]()) {
		errs = append(errs, n.api.deleteAll(ctx, sn, k, name))
	}
	return errors.Join(errs...)
}

// holdsAny reports whether a namespace has contents, except for expired silences.
func (n *namespaces) holdsAny(namespace string) bool {
	sn := n.api.opts.Config.Snapshot()
	for _, k := range contents {
		for obj := range config.ListAny(sn, k, namespace) {
			if s, ok := obj.(*resource.Silenced); !ok || !s.Expired(n.api.opts.Now()) {
				return true
			}
		}
	}
	return false
}

// gone returns nil for the error that something was already deleted.
func gone(err error) error {
	if errors.Is(err, config.ErrNotFound) {
		return nil
	}
	return err
}

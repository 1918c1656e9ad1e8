package api

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// kind says how one kind of definition is served.
type kind[T any] struct {
	api *API
	config.Kind[T]
	// accept returns the reason why an object is refused although its Validate accepts it; nil for kinds without such
	// rules. reason is the prefix of both kinds of reasons, for kinds where Sensu has one.
	accept func(*T) error
	// alone says that accept looks only at fields of its own. Then it is called even if Validate refuses the object, and
	// the mistakes of both are reported.
	alone  bool
	reason string
	// view returns the part of an object that readers get; nil for all of it.
	view func(*T) any
	// warning returns a text about an object for its author, or "". The answer has it in the Warning header. Nil for
	// kinds without warnings.
	warning func(*act, *T) string
	// hide removes the secrets from an object, see seen; nil for kinds without secrets.
	hide func(*T) *T
	// finish completes an object before it is stored: it replaces placeholders with secrets, and sets the author. It
	// refuses objects that the user's role does not reach. old is the object to replace, nil for a new one. Nil:
	// nothing to do.
	finish func(t *act, obj, old *T) (*T, error)
	// base is the prefix of the paths. Default core.
	base string
}

// resourceInvalid is the prefix of the reason why an object of most kinds is refused.
const resourceInvalid = "resource is invalid: "

const core = "/api/core/v2/"

// collection returns the path of a kind's objects, in one namespace if the kind has namespaces.
func (k *kind[T]) collection() string {
	if k.Cluster() {
		return k.root() + k.String()
	}
	return k.root() + "namespaces/{namespace}/" + k.String()
}

func (k *kind[T]) root() string {
	if k.base != "" {
		return k.base
	}
	return core
}

// serve adds all routes of a kind without special cases.
func (k *kind[T]) serve() {
	k.api.definitions[k.String()] = definition{new(T), k.erase, k.amend}
	k.serveRoutes(
		methods{http.MethodGet: k.list, http.MethodPost: k.create},
		methods{http.MethodGet: k.get, http.MethodPut: k.put, http.MethodPatch: k.patch, http.MethodDelete: k.delete},
	)
}

// serveRoutes adds a kind's routes with the given handlers for the collection and for one object.
func (k *kind[T]) serveRoutes(collection, item methods) {
	if !k.Cluster() {
		k.api.route(k.root()+k.String(), access{resource: k.String(), labels: true}, methods{http.MethodGet: collection[http.MethodGet]})
	}
	k.api.route(k.collection(), access{resource: k.String(), labels: true, dryRun: true}, collection)
	k.api.route(k.collection()+"/{name}", access{resource: k.String(), name: namePath, labels: true, dryRun: true, dryDelete: true}, item)
}

func (k *kind[T]) show(obj *T) any {
	if k.view == nil {
		return obj
	}
	return k.view(obj)
}

// shown returns the function that makes an object's view for a user.
func (k *kind[T]) shown(user *auth.Identity) func(*T) any {
	return func(obj *T) any { return k.api.seen(user, k.show(obj)) }
}

// seen returns an object as a user may see it: only users who may change a definition see its secrets.
func (a *API) seen(user *auth.Identity, obj any) any {
	switch o := obj.(type) {
	case *resource.Handler:
		return seenAs(a, user, config.Handlers, o, o.Redacted())
	case *resource.CheckConfig:
		return seenAs(a, user, config.Checks, o, o.Redacted())
	case *resource.Mutator:
		return seenAs(a, user, config.Mutators, o, o.Redacted())
	case *resource.Asset:
		return seenAs(a, user, config.Assets, o, o.Redacted())
	case *resource.PostgresConfig:
		return seenAs(a, user, config.PostgresConfigs, o, o.Redacted())
	}
	return obj
}

func seenAs[T any](a *API, user *auth.Identity, kind config.Kind[T], obj, redacted *T) *T {
	if obj == redacted {
		return obj
	}
	namespace, name := kind.Key(obj)
	at := auth.Attributes{Verb: "update", Resource: kind.String(), Namespace: namespace, Name: name}
	if a.opts.Auth.Permit(user, at).Allows(selector.Resource(obj)) {
		return obj
	}
	return redacted
}

// validate returns the reason why an object is refused, or nil.
func (k *kind[T]) validate(obj *T) error {
	err := any(obj).(interface{ Validate() error }).Validate()
	if k.accept == nil || err != nil && !k.alone {
		return err
	}
	if err == nil {
		return k.accept(obj)
	}
	return resource.JoinMistakes(err, k.accept(obj))
}

// finished returns obj in the form to store.
func (k *kind[T]) finished(t *act, obj, old *T) (*T, error) {
	if k.finish == nil {
		return obj, nil
	}
	obj, err := k.finish(t, obj, old)
	if err == nil || errors.As(err, new(*apiError)) {
		return obj, err
	}
	return nil, invalid("%v", err)
}

// token returns the continue token after an object.
func (k *kind[T]) token(obj *T) string {
	namespace, name := k.Key(obj)
	return namespace + "\x00" + name
}

// objects yields the objects of a list request, from its page on.
func (k *kind[T]) objects(r *request, p page) iter.Seq[*T] {
	afterNamespace, afterName, _ := strings.Cut(p.after, "\x00")
	namespace := r.PathValue("namespace")
	if namespace == allNamespaces && k.base == ours {
		namespace = ""
	}
	return config.ListAfter(k.api.opts.Config.Snapshot(), k.Kind, namespace, afterNamespace, afterName)
}

func (k *kind[T]) list(w *response, r *request) error {
	p := pageOf(r, k.show(new(T)))
	return writeList(w, p, k.objects(r, p), k.shown(r.user), k.token)
}

// find returns the object of an act, if the act's role reaches it.
func (k *kind[T]) find(t *act) (*T, error) {
	obj, ok := config.Get(k.api.opts.Config.Snapshot(), k.Kind, t.namespace, t.name)
	if !ok || !k.mine(t, obj) {
		return nil, errNotFound
	}
	return obj, nil
}

// mine reports whether a role that is limited by labels reaches an object. A user cannot see an object out of reach,
// make one, or change another into one.
func (k *kind[T]) mine(t *act, obj *T) bool {
	s := t.permit.Selector()
	return s == nil || s.Match(fieldsOf(obj, k.show))
}

func (k *kind[T]) outOfReach(t *act, obj *T) error { return outOfReach(t, fieldsOf(obj, k.show)) }

// write writes a complete object, whether it exists or not. The user's role must reach both it and the object it
// replaces, which must meet the preconditions.
func (k *kind[T]) write(ctx context.Context, t *act, obj *T) error {
	if t.permit.Selector() == nil && !t.conditional() && k.finish == nil {
		return config.Put(ctx, k.api.opts.Config, k.Kind, obj)
	}
	if !k.mine(t, obj) {
		return k.outOfReach(t, obj)
	}
	namespace, name := k.Key(obj)
	for {
		_, err := config.Update(ctx, k.api.opts.Config, k.Kind, namespace, name, func(old *T) (*T, error) {
			if !k.mine(t, old) {
				return nil, taken(t)
			}
			if err := t.precondition(k.shown(t.user)(old)); err != nil {
				return nil, err
			}
			return k.finished(t, obj, old)
		})
		if !errors.Is(err, config.ErrNotFound) {
			return err
		}
		if t.mustExist() {
			return errPrecondition
		}
		whole, err := k.finished(t, obj, nil)
		if err != nil {
			return err
		}
		if err = config.Create(ctx, k.api.opts.Config, k.Kind, whole); !errors.Is(err, config.ErrExists) {
			return err
		}
	}
}

func (k *kind[T]) get(w *response, r *request) error {
	obj, err := k.find(r.act)
	if err != nil {
		return err
	}
	return w.tagged(r, k.shown(r.user)(obj))
}

// complete checks the object of a POST or PUT. It fills in the fields from the path and the creator.
func (k *kind[T]) complete(t *act, obj *T) error {
	if !k.Cluster() {
		m := k.Meta(obj)
		if m.Namespace == "" {
			m.Namespace = t.namespace
		}
		if m.Namespace != t.namespace {
			return namespaceMismatch(m.Namespace, t.namespace)
		}
	}
	if _, name := k.Key(obj); t.method == http.MethodPut && name != t.name {
		return nameMismatch(name, t.name)
	}
	if m := k.Meta(obj); m != nil {
		m.CreatedBy = t.user.User
	}
	resource.DropEmptyLists(obj)
	k.warn(t, obj) // also about an object that is refused: its author mends all at once
	if err := k.validate(obj); err != nil {
		return refused(k.reason, err)
	}
	if k.Cluster() {
		return nil
	}
	return k.api.needNamespace(t.namespace)
}

// warn stores the warning for the author of an object.
func (k *kind[T]) warn(t *act, obj *T) {
	if k.warning != nil {
		t.warning = k.warning(t, obj)
	}
	if list := slices.Concat(doubts(obj), k.api.misspeltLabels(t, obj), k.api.uncontacted(t, obj)); len(list) > 0 {
		t.warning = strings.TrimPrefix(t.warning+"; "+strings.Join(list, "; "), "; ")
	}
	if missing := k.api.missingReferences(t, obj); missing != "" {
		t.warning = strings.TrimPrefix(t.warning+"; "+missing, "; ")
	}
}

func (k *kind[T]) create(w *response, r *request) error {
	obj := new(T)
	if err := k.api.decode(w, r, obj); err != nil {
		return err
	}
	err := k.add(r.Context(), r.act, obj)
	return w.written(r, http.StatusCreated, err)
}

// add checks and writes a new object.
func (k *kind[T]) add(ctx context.Context, t *act, obj *T) error {
	if err := k.complete(t, obj); err != nil {
		return err
	}
	if !k.mine(t, obj) {
		return k.outOfReach(t, obj)
	}
	obj, err := k.finished(t, obj, nil)
	if err != nil {
		return err
	}
	return config.Create(ctx, k.api.opts.Config, k.Kind, obj)
}

func (k *kind[T]) put(w *response, r *request) error {
	obj := new(T)
	if err := k.api.decode(w, r, obj); err != nil {
		return err
	}
	err := k.replace(r.Context(), r.act, obj)
	return w.written(r, http.StatusCreated, err)
}

// replace checks and writes an object, whether it exists or not.
func (k *kind[T]) replace(ctx context.Context, t *act, obj *T) error {
	if err := k.complete(t, obj); err != nil {
		return err
	}
	return k.write(ctx, t, obj)
}

func (k *kind[T]) patch(w *response, r *request) error {
	patch, err := k.api.patch(w, r)
	if err != nil {
		return err
	}
	obj, err := k.amended(r.Context(), r.act, patch)
	if err != nil {
		return err
	}
	k.warn(r.act, obj)
	w.warnOf(r.act)
	return w.tagged(r, k.shown(r.user)(obj))
}

// amended applies a merge patch to the object of an act, if the user's role reaches it before and after.
func (k *kind[T]) amended(ctx context.Context, t *act, patch []byte) (*T, error) {
	return config.Update(ctx, k.api.opts.Config, k.Kind, t.namespace, t.name, func(old *T) (*T, error) {
		if !k.mine(t, old) {
			return nil, errNotFound
		}
		if err := t.precondition(k.shown(t.user)(old)); err != nil {
			return nil, err
		}
		obj, err := k.patched(t, old, patch)
		if err == nil && !k.mine(t, obj) {
			err = k.outOfReach(t, obj)
		}
		return obj, err
	})
}

func (k *kind[T]) amend(ctx context.Context, t *act, patch []byte) error {
	_, err := k.amended(ctx, t, patch)
	return err
}

// patched returns old with a patch applied, if the name stays and the result is valid. The creator stays. The patch is
// applied to the form with placeholders, so that a kept secret differs from one in the patch.
func (k *kind[T]) patched(t *act, old *T, patch []byte) (*T, error) {
	base := old
	if k.hide != nil {
		base = k.hide(old)
	}
	obj, err := merged(base, patch)
	if err != nil {
		return nil, err
	}
	if obj, err = k.finished(t, obj, old); err != nil {
		return nil, err
	}
	return k.successor(old, obj)
}

// successor returns obj if it may replace old.
func (k *kind[T]) successor(old, obj *T) (*T, error) {
	oldNamespace, oldName := k.Key(old)
	namespace, name := k.Key(obj)
	if name != oldName {
		return nil, invalid("the name of the resource (%s) does not match the name in the URI (%s)", name, oldName)
	}
	if namespace != oldNamespace {
		return nil, invalid("the namespace of the resource (%s) does not match the namespace in the URI (%s)", namespace, oldNamespace)
	}
	if m := k.Meta(obj); m != nil {
		m.CreatedBy = k.Meta(old).CreatedBy
	}
	resource.DropEmptyLists(obj)
	if err := k.validate(obj); err != nil {
		return nil, refused("", err)
	}
	return obj, nil
}

func (k *kind[T]) delete(w *response, r *request) error {
	if err := k.erase(r.Context(), r.act, nil); err != nil {
		return err
	}
	return w.empty(http.StatusNoContent)
}

// erase deletes the object of an act, if the user's role reaches it and the preconditions are met. Nothing else is
// deleted.
func (k *kind[T]) erase(ctx context.Context, t *act, _ url.Values) error {
	var meant func(*T) bool
	var unmet error
	if t.permit.Selector() != nil || t.conditional() {
		meant = func(old *T) bool {
			unmet = nil
			if k.mine(t, old) {
				unmet = t.precondition(k.shown(t.user)(old))
				return unmet == nil
			}
			return false
		}
	}
	err := config.DeleteIf(ctx, k.api.opts.Config, k.Kind, t.namespace, t.name, meant)
	if unmet != nil {
		return unmet
	}
	return err
}

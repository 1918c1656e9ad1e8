package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

const (
	// managedByCtl is the value of managedByLabel for objects that "create" made. prune deletes nothing else.
	managedByCtl = "sensuctl"
	// keepLimit bounds the resources to keep, in bytes: they may be all that exist.
	keepLimit = 64 << 20
)

// pruned is an object that may be deleted.
type pruned struct {
	kind *resource.Kind
	meta *resource.ObjectMeta
	obj  any
}

// shownMeta returns the metadata as readers see it.
func (p *pruned) shownMeta() *resource.ObjectMeta {
	if cfg, ok := p.obj.(*resource.EntityConfig); ok {
		return &cfg.Redacted().Metadata
	}
	return p.meta
}

// prunables has the kinds that prune deletes, in the order of deletion.
var prunables = placed(func(k *resource.Kind) int { return k.Prune })

// placed returns the kinds that have a place in an order, in that order.
func placed(place func(*resource.Kind) int) []*resource.Kind {
	out := slices.DeleteFunc(slices.Clone(resource.Kinds), func(k *resource.Kind) bool { return place(k) == 0 })
	slices.SortFunc(out, func(a, b *resource.Kind) int { return place(a) - place(b) })
	return out
}

// servePrune adds the path of Sensu's commercial edition that deletes resources which are no longer in a set of files.
// The path is open: the roles are checked for each object to delete.
func (a *API) servePrune() {
	a.route("/api/enterprise/prune/v1alpha", access{open: true, long: true}, methods{http.MethodPost: a.prune})
}

// reference names an object in the request and the answer.
type reference struct {
	Type       string               `json:"type"`
	APIVersion string               `json:"api_version"`
	Metadata   *resource.ObjectMeta `json:"metadata"`
}

// prune deletes the objects of the given types and namespaces that "create" made for the given users and that the body
// does not list. It deletes nothing if the user may list one of them and not delete it. It skips objects that the user
// may neither delete nor list: the answer is the same as if they did not exist.
func (a *API) prune(w *response, r *request) error {
	what, err := pruneRequest(r)
	if err != nil {
		return err
	}
	// A user who may delete nothing of it learns nothing about what exists, and the body is not read.
	for k, namespace := range what.places() {
		if a.opts.Auth.Permit(r.user, auth.Attributes{Verb: "delete", Resource: k.Role, Namespace: namespace}).Denied() {
			return lacks("delete", k.Role)
		}
	}
	all := what.objects(a.opts.Config.Snapshot(), func(obj any) any { return a.seen(r.user, obj) })
	if err := a.dropKept(w, r, what.namespaces, all); err != nil {
		return err
	}
	gone, err := a.deletable(r, all.inOrder())
	if err != nil {
		return err
	}
	for i, obj := range gone {
		if what.dryRun {
			break
		}
		if err := a.deleteAs(r, obj); err != nil {
			err.message = fmt.Sprintf("%d of %d resources were deleted; then %s %s: %s", i, len(gone), obj.kind.Type,
				obj.meta.Name, err.message)
			return err
		}
	}
	deleted := make([]reference, len(gone))
	for i, obj := range gone {
		deleted[i] = reference{obj.kind.Type, obj.kind.Group, obj.shownMeta()}
	}
	body, err := encode(deleted)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body)
	return nil
}

// deletable returns the objects that the user may delete. It fails for an object that the user may only list.
func (a *API) deletable(r *request, objects []pruned) ([]pruned, error) {
	out := make([]pruned, 0, len(objects))
	for _, obj := range objects {
		at := auth.Attributes{Verb: "delete", Resource: obj.kind.Role, Namespace: obj.meta.Namespace, Name: obj.meta.Name}
		fields := selector.Resource(obj.obj)
		if a.opts.Auth.Permit(r.user, at).Allows(fields) {
			out = append(out, obj)
			continue
		}
		listed := auth.Attributes{Verb: "list", Resource: obj.kind.Role, Namespace: obj.meta.Namespace}
		if a.opts.Auth.Permit(r.user, listed).Allows(fields) {
			return nil, lacks("delete", obj.kind.Role)
		}
	}
	return out, nil
}

// pruning is a request to prune.
type pruning struct {
	kinds      []*resource.Kind
	namespaces []string // "" in it means all
	users      []string // nil means all
	cluster    bool
	dryRun     bool
	selector   *selector.Selector
}

type pruneKey struct {
	typ string
	resource.Name
}

func pruneRequest(r *request) (*pruning, error) {
	q := r.URL.Query()
	p := &pruning{users: values(q, "users")}
	for _, name := range values(q, "types") {
		kinds := kindsNamed(name)
		if kinds == nil {
			return nil, invalid("type %q cannot be pruned", name)
		}
		p.kinds = append(p.kinds, kinds...)
	}
	if p.kinds == nil {
		return nil, invalid("types to prune are required")
	}
	var allUsers bool
	for name, flag := range map[string]*bool{"allUsers": &allUsers, "clusterWide": &p.cluster, "dryRun": &p.dryRun} {
		if text := q.Get(name); text != "" {
			var err error
			if *flag, err = strconv.ParseBool(text); err != nil {
				return nil, invalid("%s is %q, want true or false", name, text)
			}
		}
	}
	switch {
	case allUsers:
		p.users = nil
	case p.users == nil:
		p.users = []string{r.user.User}
	}
	for _, namespace := range values(q, "namespaces") {
		if namespace == "*" || namespace == allNamespaces {
			namespace = ""
		}
		p.namespaces = append(p.namespaces, namespace)
	}
	if p.namespaces == nil && !p.cluster {
		return nil, invalid("namespaces to prune are required, unless clusterWide is set")
	}
	var err error
	if p.selector, err = selector.ParseAll(q["labelSelector"], nil); err != nil {
		return nil, invalid("%v", err)
	}
	return p, nil
}

// values returns the values of a query parameter that may be repeated and may hold several.
func values(q url.Values, name string) (out []string) {
	for _, list := range q[name] {
		for one := range strings.SplitSeq(list, ",") {
			if one = strings.TrimSpace(one); one != "" {
				out = append(out, one)
			}
		}
	}
	return out
}

// kindsNamed returns the kinds for a name of a type in files, paths or API groups, for example CheckConfig, checks or
// core/v2.CheckConfig.
func kindsNamed(name string) []*resource.Kind {
	if name == "all" {
		return prunables
	}
	for _, k := range prunables {
		short := strings.TrimPrefix(name, k.Group+".")
		if strings.EqualFold(short, k.Type) || short == k.Plural {
			return []*resource.Kind{k}
		}
	}
	if name == "core/v3.EntityConfig" {
		return kindsNamed("Entity")
	}
	return nil
}

// dropKept reads the resources to keep, as a JSON array or one after the other, and removes each from the objects to
// delete. It holds one resource at a time: the memory it needs depends on the definitions here, not on the body.
func (a *API) dropKept(w *response, r *request, namespaces []string, objects *prunedSet) error {
	body := &allowance{in: http.MaxBytesReader(w.ResponseWriter, r.Body, max(keepLimit, a.limits.Load().Request)),
		each: a.limits.Load().Request}
	body.renew()
	buffered := bufio.NewReader(body)
	first, err := firstByte(buffered)
	if err != nil {
		return invalid("%v", err) // also for an empty body: keeping nothing must be explicit
	}
	in := json.NewDecoder(buffered)
	if first == '[' {
		if _, err := in.Token(); err != nil {
			return invalid("%v", err)
		}
		for in.More() {
			if err := dropNext(in, body, namespaces, objects); err != nil {
				return err
			}
		}
		if _, err := in.Token(); err != nil {
			return invalid("%v", err)
		}
	}
	for {
		err := dropNext(in, body, namespaces, objects)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dropNext reads the next value of the body, a resource or an array of them, and removes each from the objects. It
// returns io.EOF at the end of the body.
func dropNext(in *json.Decoder, body *allowance, namespaces []string, objects *prunedSet) error {
	body.renew()
	var next keptResources
	if err := in.Decode(&next); errors.Is(err, io.EOF) {
		return io.EOF
	} else if err != nil {
		return invalid("%v", err)
	}
	for i := range next {
		key, err := next[i].key(namespaces)
		if err != nil {
			return err
		}
		delete(objects.byKey, key)
	}
	return nil
}

// firstByte returns the first byte of the body that is no white space. It stays in the reader.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(b)) {
			return b, r.UnreadByte()
		}
	}
}

// allowance is a reader that fails when more than a number of bytes are read from it without a renewal.
type allowance struct {
	in         io.Reader
	each, left int64
}

func (a *allowance) renew() { a.left = a.each }

func (a *allowance) Read(b []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("one resource is larger than %d bytes (--api-request-limit)", a.each)
	}
	n, err := a.in.Read(b[:min(int64(len(b)), a.left)])
	a.left -= int64(n)
	return n, err
}

// keptResource has the fields that are read of a resource to keep.
type keptResource struct {
	Type     string
	Metadata resource.Name
	Spec     struct{ Metadata resource.Name }
}

// keptResources decodes an array or a single resource.
type keptResources []keptResource

func (k *keptResources) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]keptResource)(k))
	}
	*k = make(keptResources, 1)
	return json.Unmarshal(b, &(*k)[0])
}

// key returns the key of the resource. The default namespace is the one that is pruned.
func (res *keptResource) key(namespaces []string) (pruneKey, error) {
	m := res.Metadata
	if m.Name == "" {
		m = res.Spec.Metadata
	}
	typ := res.Type
	switch typ {
	case "":
		return pruneKey{}, invalid("a resource to keep has no type")
	case "EntityConfig":
		typ = "Entity"
	}
	i := slices.IndexFunc(prunables, func(k *resource.Kind) bool { return k.Type == typ })
	if i < 0 {
		return pruneKey{typ: typ}, nil // nothing of this type is deleted
	}
	if m.Name == "" {
		return pruneKey{}, invalid("a %s to keep has no name", typ)
	}
	if m.Namespace == "" && prunables[i].Namespaced {
		if len(namespaces) != 1 || namespaces[0] == "" {
			return pruneKey{}, invalid("the %s %s to keep has no namespace", typ, m.Name)
		}
		m.Namespace = namespaces[0]
	}
	return pruneKey{typ, m}, nil
}

// prunedSet has the objects to delete, in order.
type prunedSet struct {
	order []pruneKey
	byKey map[pruneKey]pruned
}

// inOrder returns the objects that are still in the set.
func (s *prunedSet) inOrder() []pruned {
	out := make([]pruned, 0, len(s.byKey))
	for _, key := range s.order {
		if obj, ok := s.byKey[key]; ok {
			out = append(out, obj)
		}
	}
	return out
}

// objects returns all objects of the request, before those to keep are removed. The selector is the user's, so it
// matches the user's view of an object. Otherwise the answer would reveal secrets.
func (p *pruning) objects(sn *config.Snapshot, seen func(any) any) *prunedSet {
	now := time.Now()
	set := &prunedSet{byKey: map[pruneKey]pruned{}}
	for k, namespace := range p.places() {
		for obj := range config.ListAny(sn, k, namespace) {
			meta := resource.MetaOf(obj)
			if meta.Labels[managedByLabel] != managedByCtl ||
				p.users != nil && !slices.Contains(p.users, meta.CreatedBy) ||
				!p.selector.MatchAt(selector.Resource(seen(obj)), now) {
				continue
			}
			key := pruneKey{k.Type, resource.NameOf(meta)}
			set.order = append(set.order, key)
			set.byKey[key] = pruned{k, meta, obj}
		}
	}
	return set
}

// places yields the kinds and namespaces to search, each once and in the order of the kinds.
func (p *pruning) places() iter.Seq2[*resource.Kind, string] {
	namespaces := slices.Compact(slices.Sorted(slices.Values(p.namespaces)))
	if slices.Contains(namespaces, "") {
		namespaces = []string{""}
	}
	return func(yield func(*resource.Kind, string) bool) {
		for _, k := range prunables {
			if !slices.Contains(p.kinds, k) {
				continue
			}
			if !k.Namespaced {
				if p.cluster && !yield(k, "") {
					return
				}
				continue
			}
			for _, namespace := range namespaces {
				if !yield(k, namespace) {
					return
				}
			}
		}
	}
}

// deleteAs deletes an object like a DELETE of the user, with everything that DELETE includes, and the audit log has the
// user. The user's credentials must still be valid.
func (a *API) deleteAs(r *request, obj pruned) *apiError {
	err := a.identify(r)
	if err == nil {
		err = a.actAs(r.Context(), r.act, a.erasing(obj.kind, obj.meta.Namespace, obj.meta.Name))
	}
	if err == nil || !config.HasAny(a.opts.Config.Snapshot(), obj.kind, obj.meta.Namespace, obj.meta.Name) {
		return nil // another request was faster
	}
	e, _ := classify(err)
	return &apiError{status: e.status, code: e.code, message: e.message}
}

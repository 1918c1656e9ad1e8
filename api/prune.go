package api

import (
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
	// managedByCtl is what managedByLabel says of what "create" made, and prune deletes nothing else.
	managedByCtl = "sensuctl"
	// keepLimit bounds the resources to keep, in bytes: they may be all there are.
	keepLimit = 64 << 20
)

// prunable is a kind of definition that prune deletes from.
type prunable struct {
	typ     string // as in files
	version string // as in files, and in paths
	name    string // as in paths
	cluster bool
	objects func(sn *config.Snapshot, namespace string) iter.Seq[pruned]
	has     func(sn *config.Snapshot, namespace, name string) bool
}

// pruned is an object that may be deleted.
type pruned struct {
	kind *prunable
	meta *resource.ObjectMeta
	obj  any
}

func prunableKind[T any](typ string, k config.Kind[T], meta func(*T) *resource.ObjectMeta) *prunable {
	p := &prunable{typ: typ, version: "core/v2", name: k.String(), cluster: k.Cluster()}
	p.has = func(sn *config.Snapshot, namespace, name string) bool {
		_, ok := config.Get(sn, k, namespace, name)
		return ok
	}
	p.objects = func(sn *config.Snapshot, namespace string) iter.Seq[pruned] {
		return func(yield func(pruned) bool) {
			for obj := range config.List(sn, k, namespace) {
				if !yield(pruned{p, meta(obj), obj}) {
					return
				}
			}
		}
	}
	return p
}

// of is the kind in another version than Sensu's.
func (p *prunable) of(version string) *prunable {
	p.version = version
	return p
}

// prunables are the kinds that have labels, in the order in which they are deleted: what grants rights goes last.
var prunables = []*prunable{
	prunableKind("CheckConfig", config.Checks, func(c *resource.CheckConfig) *resource.ObjectMeta { return &c.Metadata }),
	prunableKind("Handler", config.Handlers, func(h *resource.Handler) *resource.ObjectMeta { return &h.Metadata }),
	prunableKind("Aggregate", config.Aggregates, func(a *resource.Aggregate) *resource.ObjectMeta { return &a.Metadata }).of(resource.AggregateAPIVersion),
	prunableKind("FallbackPipeline", config.FallbackPipelines, func(f *resource.FallbackPipeline) *resource.ObjectMeta { return &f.Metadata }),
	prunableKind("Pipeline", config.Pipelines, func(p *resource.Pipeline) *resource.ObjectMeta { return &p.Metadata }),
	prunableKind("EventFilter", config.Filters, func(f *resource.EventFilter) *resource.ObjectMeta { return &f.Metadata }),
	prunableKind("Mutator", config.Mutators, func(m *resource.Mutator) *resource.ObjectMeta { return &m.Metadata }),
	prunableKind("HookConfig", config.Hooks, func(h *resource.HookConfig) *resource.ObjectMeta { return &h.Metadata }),
	prunableKind("Asset", config.Assets, func(a *resource.Asset) *resource.ObjectMeta { return &a.Metadata }),
	prunableKind("Pipeline", config.Pipelines, func(p *resource.Pipeline) *resource.ObjectMeta { return &p.Metadata }),
	prunableKind("EventFilter", config.Filters, func(f *resource.EventFilter) *resource.ObjectMeta { return &f.Metadata }),
	prunableKind("Mutator", config.Mutators, func(m *resource.Mutator) *resource.ObjectMeta { return &m.Metadata }),
	prunableKind("HookConfig", config.Hooks, func(h *resource.HookConfig) *resource.ObjectMeta { return &h.Metadata }),
	prunableKind("Asset", config.Assets, func(a *resource.Asset) *resource.ObjectMeta { return &a.Metadata }),
	prunableKind("Entity", config.Entities, func(e *resource.EntityConfig) *resource.ObjectMeta { return &e.Metadata }),
	prunableKind("Silenced", config.Silences, func(s *resource.Silenced) *resource.ObjectMeta { return &s.Metadata }),
	prunableKind("RoleBinding", config.RoleBindings, func(b *resource.RoleBinding) *resource.ObjectMeta { return &b.Metadata }),
	prunableKind("Role", config.Roles, func(r *resource.Role) *resource.ObjectMeta { return &r.Metadata }),
	prunableKind("ClusterRoleBinding", config.ClusterRoleBindings, func(b *resource.ClusterRoleBinding) *resource.ObjectMeta { return &b.Metadata }),
	prunableKind("ClusterRole", config.ClusterRoles, func(r *resource.ClusterRole) *resource.ObjectMeta { return &r.Metadata }),
}

// servePrune adds the path of Sensu's commercial edition that deletes what a set of files does not hold any more. It is open:
// each object that would go is asked for by itself, as a DELETE of it would be.
func (a *API) servePrune() {
	a.route("/api/enterprise/prune/v1alpha", access{open: true, long: true}, methods{http.MethodPost: a.prune})
}

// reference is how an object is told of in the request and the answer.
type reference struct {
	Type       string               `json:"type"`
	APIVersion string               `json:"api_version"`
	Metadata   *resource.ObjectMeta `json:"metadata"`
}

// prune deletes the objects of the given types and namespaces that "create" made for the given users and that are not in the
// body. Nothing is deleted if one of them may not be.
func (a *API) prune(w *response, r *request) error {
	what, err := pruneRequest(r)
	if err != nil {
		return err
	}
	if what.keep, err = a.kept(w, r, what); err != nil {
		return err
	}
	// Whoever may delete nothing of it is not told whether there is something either.
	for k, namespace := range what.places() {
		if a.opts.Auth.Permit(r.user, auth.Attributes{Verb: "delete", Resource: k.name, Namespace: namespace}).Denied() {
			return errDenied
		}
	}
	var gone []pruned
	for obj := range what.objects(a.opts.Config.Snapshot()) {
		at := auth.Attributes{Verb: "delete", Resource: obj.kind.name, Namespace: obj.meta.Namespace, Name: obj.meta.Name}
		if !a.opts.Auth.Permit(r.user, at).Allows(selector.Resource(obj.obj)) {
			return errDenied
		}
		gone = append(gone, obj)
	}
	for i, obj := range gone {
		if what.dryRun {
			break
		}
		if err := a.deleteAs(r, obj); err != nil {
			err.message = fmt.Sprintf("%d of %d resources were deleted; then %s %s: %s", i, len(gone), obj.kind.typ, obj.meta.Name, err.message)
			return err
		}
	}
	deleted := make([]reference, len(gone))
	for i, obj := range gone {
		deleted[i] = reference{obj.kind.typ, obj.kind.version, obj.meta}
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

// pruning is what a request wants deleted.
type pruning struct {
	kinds      []*prunable
	namespaces []string // "" in it stands for all
	users      []string // nil for all
	cluster    bool
	dryRun     bool
	selector   *selector.Selector
	keep       map[pruneKey]bool
}

type pruneKey struct{ typ, namespace, name string }

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

// values are those of a query parameter that may be repeated and may hold several.
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

// kindsNamed finds a type as files, paths or API groups call it, such as CheckConfig, checks or core/v2.CheckConfig.
func kindsNamed(name string) []*prunable {
	if name == "all" {
		return prunables
	}
	for _, k := range prunables {
		short := strings.TrimPrefix(name, k.version+".")
		if strings.EqualFold(short, k.typ) || short == k.name {
			return []*prunable{k}
		}
	}
	if name == "core/v3.EntityConfig" {
		return kindsNamed("Entity")
	}
	return nil
}

// kept reads what stays: a JSON array of resources, or one after the other.
func (a *API) kept(w *response, r *request, what *pruning) (map[pruneKey]bool, error) {
	keep := map[pruneKey]bool{}
	in := json.NewDecoder(http.MaxBytesReader(w.ResponseWriter, r.Body, max(keepLimit, a.limits.Load().Request)))
	for n := 0; ; n++ {
		var value json.RawMessage
		err := in.Decode(&value)
		if errors.Is(err, io.EOF) && n > 0 {
			return keep, nil
		}
		if err != nil {
			return nil, invalid("%v", err) // also for no body at all: to keep nothing must be said
		}
		list := []json.RawMessage{value}
		if strings.HasPrefix(string(value), "[") {
			if err := json.Unmarshal(value, &list); err != nil {
				return nil, invalid("%v", err)
			}
		}
		for _, one := range list {
			key, err := keepKey(one, what.namespaces)
			if err != nil {
				return nil, err
			}
			keep[key] = true
		}
	}
}

// keepKey names a resource to keep. One that does not say its namespace is meant in the one that is pruned.
func keepKey(text json.RawMessage, namespaces []string) (pruneKey, error) {
	var res struct {
		Type     string
		Metadata resource.ObjectMeta
		Spec     struct{ Metadata resource.ObjectMeta }
	}
	if err := json.Unmarshal(text, &res); err != nil {
		return pruneKey{}, invalid("%v", err)
	}
	m := res.Metadata
	if m.Name == "" {
		m = res.Spec.Metadata
	}
	switch res.Type {
	case "":
		return pruneKey{}, invalid("a resource to keep has no type")
	case "EntityConfig":
		res.Type = "Entity"
	}
	i := slices.IndexFunc(prunables, func(k *prunable) bool { return k.typ == res.Type })
	if i < 0 {
		return pruneKey{typ: res.Type}, nil // nothing of this type is deleted
	}
	if m.Name == "" {
		return pruneKey{}, invalid("a %s to keep has no name", res.Type)
	}
	if m.Namespace == "" && !prunables[i].cluster {
		if len(namespaces) != 1 || namespaces[0] == "" {
			return pruneKey{}, invalid("the %s %s to keep has no namespace", res.Type, m.Name)
		}
		m.Namespace = namespaces[0]
	}
	return pruneKey{res.Type, m.Namespace, m.Name}, nil
}

// objects are those to delete.
func (p *pruning) objects(sn *config.Snapshot) iter.Seq[pruned] {
	now := time.Now()
	wanted := func(obj pruned) bool {
		return obj.meta.Labels[managedByLabel] == managedByCtl &&
			(p.users == nil || slices.Contains(p.users, obj.meta.CreatedBy)) &&
			!p.keep[pruneKey{obj.kind.typ, obj.meta.Namespace, obj.meta.Name}] &&
			p.selector.MatchAt(selector.Resource(obj.obj), now)
	}
	return func(yield func(pruned) bool) {
		for k, namespace := range p.places() {
			for obj := range k.objects(sn, namespace) {
				if wanted(obj) && !yield(obj) {
					return
				}
			}
		}
	}
}

// places are the kinds and namespaces to look in, each once and in the order of the kinds.
func (p *pruning) places() iter.Seq2[*prunable, string] {
	namespaces := slices.Compact(slices.Sorted(slices.Values(p.namespaces)))
	if slices.Contains(namespaces, "") {
		namespaces = []string{""}
	}
	return func(yield func(*prunable, string) bool) {
		for _, k := range prunables {
			if !slices.Contains(p.kinds, k) {
				continue
			}
			if k.cluster {
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

// deleteAs deletes an object by the same door as a DELETE of the user would: what goes with it goes too, and the audit log
// says who it was.
func (a *API) deleteAs(r *request, obj pruned) *apiError {
	path := "/api/" + obj.kind.version + "/"
	if !obj.kind.cluster {
		path += "namespaces/" + segment(obj.meta.Namespace) + "/"
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodDelete, path+obj.kind.name+"/"+segment(obj.meta.Name), nil)
	if err != nil {
		return &apiError{status: http.StatusInternalServerError, code: codeInternal, message: err.Error()}
	}
	req.RemoteAddr = r.RemoteAddr
	req.Header.Set("Authorization", r.Header.Get("Authorization"))
	answer := &memory{header: http.Header{}}
	a.mux.ServeHTTP(&response{ResponseWriter: answer}, req)
	if answer.status == http.StatusNoContent || !obj.kind.has(a.opts.Config.Snapshot(), obj.meta.Namespace, obj.meta.Name) {
		return nil // or somebody else was faster
	}
	out := &apiError{status: answer.status}
	var told struct {
		Message string
		Code    int
	}
	if json.Unmarshal(answer.body, &told) != nil {
		told.Message = string(answer.body)
	}
	out.message, out.code = told.Message, told.Code
	return out
}

// segment is a name in a path. Dots alone would be taken for the directory above.
func segment(name string) string { return strings.ReplaceAll(url.PathEscape(name), ".", "%2E") }

// memory is a ResponseWriter that keeps the answer.
type memory struct {
	header http.Header
	status int
	body   []byte
}

func (m *memory) Header() http.Header { return m.header }

func (m *memory) WriteHeader(status int) {
	if m.status == 0 {
		m.status = status
	}
}

func (m *memory) Write(b []byte) (int, error) {
	m.WriteHeader(http.StatusOK)
	m.body = append(m.body, b...)
	return len(b), nil
}

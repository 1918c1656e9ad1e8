package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

// ours begins the paths that Sensu does not have.
const ours = "/api/lapwing/v1/"

// serveCanI adds the question whether a user may do something. Users may ask about themselves, and about users whom
// they may see.
func (a *API) serveCanI() {
	a.route(ours+"auth/can-i", access{open: true}, methods{http.MethodGet: a.canI})
	a.route(ours+"auth/rights", access{open: true}, methods{http.MethodGet: a.rights})
}

// canIAnswer says whether a user may do something, and which binding and role allow it.
type canIAnswer struct {
	Allowed bool     `json:"allowed"`
	User    string   `json:"user"`
	Groups  []string `json:"groups"`
	// Binding and Role allow it; they are null if nothing does.
	Binding *canIBinding `json:"binding"`
	Role    *canIRole    `json:"role"`
	// Namespace is the namespace of the rights that count; "" if those in the whole cluster count.
	Namespace string `json:"namespace"`
	// Unknown is set if no request asks for the resource. Then Allowed says what the rules say, which has no effect here.
	Unknown bool `json:"unknown,omitempty"`
	// Note is what else to know about the answer, for people.
	Note string `json:"note,omitempty"`
	// LabelSelectors are set if it is allowed only for objects that match one of them. If the question names an object that
	// the asking user may see and that matches none, Allowed is false.
	LabelSelectors []string `json:"label_selectors,omitempty"`
}

// canIBinding is the binding that grants a role.
type canIBinding struct {
	Type      string `json:"type"` // RoleBinding or ClusterRoleBinding
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// canIRole is the role that allows something.
type canIRole struct {
	Type string `json:"type"` // Role or ClusterRole
	Name string `json:"name"`
}

var verbs = []string{"get", "list", "create", "update", "delete"}

// canI answers ?verb=&resource=[&name=][&namespace=], for the user of the request or for the one in as. Groups in
// group, any number of times, replace the user's own; then the user need not exist. It answers as the routes decide: for a
// resource of the whole cluster, the namespace does not count.
func (a *API) canI(w *response, r *request) error {
	q := r.URL.Query()
	at := auth.Attributes{
		Verb: q.Get("verb"), Resource: q.Get("resource"), Name: q.Get("name"), Namespace: roleNamespace(q.Get("namespace")),
	}
	if !slices.Contains(verbs, at.Verb) {
		text := fmt.Sprintf("verb must be one of get, list, create, update and delete, not %q", at.Verb)
		if means := otherVerbs[at.Verb]; means != "" {
			text += ": " + means
		}
		return invalid("%s", text)
	}
	if at.Resource == "" {
		return invalid("resource must not be empty")
	}
	id, err := a.askedFor(r, q.Get("as"), q["group"])
	if err != nil {
		return err
	}
	known := a.knownResources()
	out := canIAnswer{User: id.User, Groups: append([]string{}, id.Groups...)}
	switch {
	case at.Resource != "*" && !slices.Contains(known, at.Resource):
		out.Unknown, out.Note = true, a.unknownResource(at.Resource, known)
	case a.clusterWide(at.Resource):
		at.Namespace = ""
		out.Note = at.Resource + " belong to the whole cluster: only ClusterRoleBindings count"
	case at.Namespace != "":
		out.Note = a.unknownNamespace(r.user, at.Namespace)
	}
	out.Namespace = at.Namespace
	if at.Resource == "namespaces" && (at.Verb == "get" || at.Verb == "list") {
		out.Allowed, out.Note = a.seesNamespace(id, at)
		return w.object(out)
	}
	if at.Resource == "users" && at.Verb == "get" && at.Name == id.User && id.Origin.Local() {
		at.Resource, out.Note = selfResource, ""
	}
	p := a.opts.Auth.Permit(id, at)
	switch {
	case p.Whole():
		out.Allowed = true
	case p.Denied():
	case at.Resource == "*":
		out.Allowed, out.LabelSelectors = true, p.Labels()
		out.Note = "not for resources without labels: " + strings.Join(a.unlabelled([]string{"*"}), ", ")
	case len(a.unlabelled([]string{at.Resource})) > 0:
		out.Note = strings.TrimPrefix(out.Note+"; the resource "+at.Resource+" has no labels: rules limited by labels do not count", "; ")
	default:
		out.Allowed, out.LabelSelectors = true, p.Labels()
	}
	if out.Allowed && !p.Whole() && at.Name != "" && at.Verb != "create" {
		// The labels of an object that exists decide; the selectors in the answer then say why not. An object that the
		// asking user may not see counts as one that does not exist.
		seen := at
		seen.Verb = "get"
		if f := a.storedFields(at); f != nil && a.opts.Auth.Permit(r.user, seen).Allows(f) {
			out.Allowed = p.Allows(f)
		}
	}
	if by := p.By(); out.Allowed {
		binding := bindingOf(by)
		out.Binding = &binding
		out.Role = &canIRole{by.Role.Type, by.Role.Name}
	}
	return w.object(out)
}

// otherVerbs has what users call the verbs.
var otherVerbs = map[string]string{
	"ack": "to acknowledge is create on silenced", "acknowledge": "to acknowledge is create on silenced",
	"silence": "to silence is create on silenced", "unsilence": "to end a silence is delete on silenced",
	"read": "to read is get and list", "view": "to read is get and list", "show": "to read is get and list",
	"edit": "to edit is create and update", "write": "to write is create and update", "change": "to change is update",
	"execute": "to execute a check is create on checks",
}

// clusterWide reports whether all routes of a known resource are without a namespace: then only roles that are bound in
// the whole cluster allow them.
func (a *API) clusterWide(name string) bool {
	found := name == selfResource || name == "namespaces" // their routes are open: the handlers decide
	for i := range a.routes {
		if a.routes[i].resource != name {
			continue
		}
		if found = !strings.Contains(a.routes[i].pattern, "{namespace}"); !found {
			return false
		}
	}
	return found
}

// unlabelled returns which of the resources in a rule have no labels, sorted: a rule that is limited by labels allows nothing
// of them. It leaves out names that no request asks for, and the own user, which every user has a right to.
func (a *API) unlabelled(resources []string) (names []string) {
	labelled := map[string]bool{config.Namespaces.String(): false, metricsResource: false} // their handlers decide
	for i := range a.routes {
		if route := &a.routes[i]; route.resource != "" {
			labelled[route.resource] = labelled[route.resource] || route.labels
		}
	}
	for _, name := range slices.Sorted(maps.Keys(labelled)) {
		if !labelled[name] && name != selfResource && (slices.Contains(resources, name) || slices.Contains(resources, "*")) {
			names = append(names, name)
		}
	}
	return names
}

// seesNamespace reports whether a user may get a namespace, or list them. Lists are never refused: they have the namespaces
// that the user may see.
func (a *API) seesNamespace(id *auth.Identity, at auth.Attributes) (allowed bool, note string) {
	visible := a.opts.Auth.VisibleNamespaces(id)
	if at.Name != "" {
		return visible.Has(at.Name), "users see the namespaces in which a role allows them to get something"
	}
	note = "the list has the namespaces in which a role allows to get something"
	if at.Verb == "get" {
		note = "which namespaces depends on the roles: those in which a role allows to get something"
	}
	return true, note
}

// unknownNamespace returns a note if a namespace is not among those that a user sees; "" otherwise.
func (a *API) unknownNamespace(user *auth.Identity, name string) string {
	visible := a.opts.Auth.VisibleNamespaces(user)
	var names []string
	for ns := range config.List(a.opts.Config.Snapshot(), config.Namespaces, "") {
		if visible.Has(ns.Name) {
			names = append(names, ns.Name)
		}
	}
	if slices.Contains(names, name) {
		return ""
	}
	text := "the namespace " + resource.Short(name) + " does not exist, or you may not see it"
	if near := optionerr.Nearest(name, names); near != "" {
		text += " (the nearest name is " + near + ")"
	}
	return text
}

// unknownResource says which resource is meant by a name that is no resource's: the resource that the route of this name
// asks for, or the one with the nearest name.
func (a *API) unknownResource(name string, known []string) string {
	text := "the resource " + resource.Short(name) + " is not known: no request asks for it"
	if len(name) > maxUnknownName {
		return text
	}
	if near := nearestResource(name, known); near != "" {
		return text + " (the nearest known name is " + near + ")"
	}
	words := map[string]string{} // the words in paths, and the resources of their routes
	for i := range a.routes {
		route := &a.routes[i]
		for word := range strings.SplitSeq(strings.TrimPrefix(route.pattern, ours), "/") {
			if word != "" && word[0] != '{' && route.resource != "" && words[word] == "" {
				words[word] = route.resource
			}
		}
	}
	if word := optionerr.Nearest(name, slices.Sorted(maps.Keys(words))); word != "" {
		return text + " (" + word + " need rights on " + words[word] + ")"
	}
	for _, k := range known {
		if strings.HasPrefix(name, k) {
			return text + " (the nearest known name is " + k + ")"
		}
	}
	return text
}

// storedFields returns the fields of an object that exists, or nil.
func (a *API) storedFields(at auth.Attributes) selector.Fields {
	for _, k := range resource.Kinds {
		if k.Role != at.Resource || k.Internal() {
			continue
		}
		if k.Paired {
			entity, check, _ := strings.Cut(at.Name, "/")
			ev, err := a.opts.State.Event(at.Namespace, entity, check)
			if err != nil {
				return nil
			}
			return selector.Event(ev)
		}
		if obj, ok := config.GetAny(a.opts.Config.Snapshot(), k, at.Namespace, at.Name); ok {
			return selector.Resource(obj)
		}
	}
	return nil
}

// rightsAnswer has the rules that count for a user in a namespace.
type rightsAnswer struct {
	User      string   `json:"user"`
	Groups    []string `json:"groups"`
	Namespace string   `json:"namespace"` // "" for what the user may do in all namespaces at once
	Rights    []right  `json:"rights"`
}

// right is a rule, and the binding and role that grant it.
type right struct {
	Verbs         []string `json:"verbs"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resource_names,omitempty"` // none: any
	LabelSelector string   `json:"label_selector,omitempty"` // "": any
	// Unlabelled are the resources of the rule that have no labels. A rule with a label selector allows nothing of them.
	Unlabelled []string    `json:"unlabelled,omitempty"`
	Binding    canIBinding `json:"binding"`
	Role       canIRole    `json:"role"`
}

// rights answers ?namespace=, for the same users as canI.
func (a *API) rights(w *response, r *request) error {
	q := r.URL.Query()
	id, err := a.askedFor(r, q.Get("as"), q["group"])
	if err != nil {
		return err
	}
	out := rightsAnswer{
		User: id.User, Groups: append([]string{}, id.Groups...), Namespace: roleNamespace(q.Get("namespace")), Rights: []right{},
	}
	for _, g := range a.opts.Auth.Rules(id, out.Namespace) {
		one := right{
			Verbs: append([]string{}, g.Verbs...), Resources: append([]string{}, g.Resources...), ResourceNames: g.ResourceNames,
			LabelSelector: g.LabelSelector, Binding: bindingOf(g.Source), Role: canIRole{g.Source.Role.Type, g.Source.Role.Name},
		}
		if g.LabelSelector != "" {
			one.Unlabelled = a.unlabelled(g.Resources)
		}
		out.Rights = append(out.Rights, one)
	}
	return w.object(out)
}

func bindingOf(by auth.Source) canIBinding {
	if by.Namespace != "" {
		return canIBinding{Type: "RoleBinding", Namespace: by.Namespace, Name: by.Binding}
	}
	return canIBinding{Type: "ClusterRoleBinding", Name: by.Binding}
}

// askedFor returns the user that a question is about.
func (a *API) askedFor(r *request, user string, groups []string) (*auth.Identity, error) {
	if user == "" && len(groups) == 0 {
		return r.user, nil
	}
	if !a.opts.Auth.Authorize(r.user, auth.Attributes{Verb: "get", Resource: "users", Name: user}) {
		return nil, lacks("get", "users")
	}
	if len(groups) > 0 {
		return &auth.Identity{User: user, Groups: groups}, nil
	}
	id, ok := a.opts.Auth.Login(user)
	if u, known := config.Get(a.opts.Config.Snapshot(), config.Users, "", user); !ok && known && u.Disabled {
		return nil, &apiError{status: http.StatusNotFound, code: codeNotFound,
			message: "the user " + user + " is disabled, and may do nothing"}
	}
	if !ok {
		return nil, errNotFound
	}
	return id, nil
}

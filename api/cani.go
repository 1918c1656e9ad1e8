package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
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
	// LabelSelectors are set if it is allowed only for objects that match one of them. If the question names an object that
	// exists and matches none, Allowed is false.
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
// group, any number of times, replace the user's own; then the user need not exist.
func (a *API) canI(w *response, r *request) error {
	q := r.URL.Query()
	at := auth.Attributes{Verb: q.Get("verb"), Resource: q.Get("resource"), Name: q.Get("name"), Namespace: q.Get("namespace")}
	if !slices.Contains(verbs, at.Verb) {
		return invalid("verb must be one of get, list, create, update and delete, not %q", at.Verb)
	}
	if at.Resource == "" {
		return invalid("resource must not be empty")
	}
	if at.Namespace == allNamespaces {
		at.Namespace = ""
	}
	id, err := a.askedFor(r, q.Get("as"), q["group"])
	if err != nil {
		return err
	}
	p := a.opts.Auth.Permit(id, at)
	out := canIAnswer{Allowed: !p.Denied(), User: id.User, Groups: append([]string{}, id.Groups...), LabelSelectors: p.Labels()}
	if p.Whole() {
		out.LabelSelectors = nil
	}
	if out.Allowed && !p.Whole() && at.Name != "" && at.Verb != "create" {
		// The labels of an object that exists decide; the selectors in the answer then say why not.
		if f := a.storedFields(at); f != nil {
			out.Allowed = p.Allows(f)
		}
	}
	if known := a.knownResources(); at.Resource != "*" && !slices.Contains(known, at.Resource) {
		text := "the resource " + resource.Short(at.Resource) + " is not known: no request asks for it"
		if near := nearestResource(at.Resource, known); near != "" {
			text += " (the nearest known name is " + near + ")"
		}
		w.advise(text)
	}
	if by := p.By(); out.Allowed {
		binding := bindingOf(by)
		out.Binding = &binding
		out.Role = &canIRole{by.Role.Type, by.Role.Name}
	}
	return w.object(out)
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
	Verbs         []string    `json:"verbs"`
	Resources     []string    `json:"resources"`
	ResourceNames []string    `json:"resource_names,omitempty"` // none: any
	LabelSelector string      `json:"label_selector,omitempty"` // "": any
	Binding       canIBinding `json:"binding"`
	Role          canIRole    `json:"role"`
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
		out.Rights = append(out.Rights, right{
			Verbs: append([]string{}, g.Verbs...), Resources: append([]string{}, g.Resources...), ResourceNames: g.ResourceNames,
			LabelSelector: g.LabelSelector, Binding: bindingOf(g.Source), Role: canIRole{g.Source.Role.Type, g.Source.Role.Name},
		})
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
		return nil, errDenied
	}
	if len(groups) > 0 {
		return &auth.Identity{User: user, Groups: groups}, nil
	}
	id, ok := a.opts.Auth.Login(user)
	if !ok {
		return nil, errNotFound
	}
	return id, nil
}

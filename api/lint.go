package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/references"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// serveLint adds what is doubtful about the stored definitions, and what names some of them. Users see findings about the
// kinds that they may list, if they tell about names of no other kinds. The other kinds are told as unseen.
func (a *API) serveLint() {
	a.route(ours+"namespaces/{namespace}/lint", access{open: true}, methods{http.MethodGet: a.lint})
	a.route(ours+"namespaces/{namespace}/referrers", access{open: true}, methods{http.MethodGet: a.referrers})
}

func (a *API) lint(w *response, r *request) error {
	found := []resource.LintFinding{}
	may := a.mayListEach(r.user)
	var failed error
	reported := func(namespace string) map[string]bool {
		names := map[string]bool{}
		events, err := a.opts.State.Select(r.Context(), state.Query{Namespace: namespace})
		if err != nil {
			failed = err
			return names
		}
		for key := range events.Keys() {
			names[key.Check] = true
		}
		return names
	}
	beyond := references.Beyond{Rules: a.unknownResources, Reported: reported}
	for _, f := range references.Lint(a.opts.Config.Snapshot(), inNamespace(r), beyond) {
		if may(f.Resource, f.Namespace) && (f.Names == "" || seesNamed(may, f.Names, f.Namespace)) {
			found = append(found, f)
		}
	}
	if failed != nil {
		return failed
	}
	for _, k := range resource.Kinds {
		if references.Linted(k) && !may(k.Role, inNamespace(r)) {
			found = append(found, resource.LintFinding{Severity: "unseen", Kind: k.Command, Resource: k.Role, Namespace: inNamespace(r),
				Text: "not looked at: you may not list all " + k.Role + " here"})
		}
	}
	return w.object(found)
}

// mostReferrers bounds the referrers in an answer. Each name in the request has an equal part of them.
const mostReferrers = 1000

// referrers answers which definitions name some others. Each parameter to is one of these, such as handlers/slack.
func (a *API) referrers(w *response, r *request) error {
	asked := map[string]bool{}
	for _, to := range r.URL.Query()["to"] {
		if kind, name, ok := strings.Cut(to, "/"); !ok || kind == "" || name == "" {
			return invalid("to is %q, want a resource and a name, as handlers/slack", to)
		}
		asked[to] = true
	}
	answer, may := resource.Referrers{Referrers: []resource.Referrer{}, More: map[string]int{}}, a.mayListEach(r.user)
	known, most := map[string]int{}, max(1, mostReferrers/max(1, len(asked)))
	named := func(resource, name string) bool { return asked[resource+"/"+name] }
	for _, one := range references.Referrers(a.opts.Config.Snapshot(), inNamespace(r), named) {
		if !may(one.Resource, one.Namespace) {
			continue
		}
		to := one.Names + "/" + one.Named
		if known[to]++; known[to] > most {
			answer.More[to]++
			continue
		}
		answer.Referrers = append(answer.Referrers, one)
	}
	return w.object(answer)
}

// mayListEach returns mayList of a user, which asks the roles once for each resource and namespace.
func (a *API) mayListEach(user *auth.Identity) func(resource, namespace string) bool {
	known := map[[2]string]bool{}
	return func(resource, namespace string) bool {
		key := [2]string{resource, namespaceOf(resource, namespace)}
		allowed, asked := known[key]
		if !asked {
			allowed = a.mayList(user, key[0], key[1])
			known[key] = allowed
		}
		return allowed
	}
}

// namespaceOf returns the namespace of what a definition names: of users and cluster roles there is none.
func namespaceOf(resource, namespace string) string {
	if resource == config.ClusterRoles.String() || resource == config.Users.String() {
		return ""
	}
	return namespace
}

// seesNamed reports whether a user may read what is told about names of a resource. What is told about groups of users comes
// from bindings of both kinds.
func seesNamed(may func(resource, namespace string) bool, resource, namespace string) bool {
	groups := resource == config.RoleBindings.String() && namespace == ""
	return may(resource, namespace) && (!groups || may(config.ClusterRoleBindings.String(), ""))
}

func (a *API) mayList(user *auth.Identity, resource, namespace string) bool {
	return a.opts.Auth.Permit(user, auth.Attributes{Verb: "list", Resource: resource, Namespace: namespace}).Whole()
}

// doubts warns the author of a definition about what it asks for and lapwing does not do, and about what it mostly does not
// mean (references.Doubts).
func doubts(obj any) (texts []string) {
	for _, u := range resource.UnsupportedIn(obj) {
		texts = append(texts, u.String())
	}
	return append(texts, references.Doubts(obj)...)
}

// uncontacted warns the author of a definition about handlers in it that need a contact, if the author may list handlers.
func (a *API) uncontacted(t *act, obj any) []string {
	if t.user == nil || !a.mayList(t.user, config.Handlers.String(), t.namespace) {
		return nil
	}
	return references.Uncontacted(a.opts.Config.Snapshot(), obj)
}

// misspeltLabels warns the author of a filter who may list entities about labels in it that are probably misspelt.
func (a *API) misspeltLabels(t *act, obj any) []string {
	if _, ok := obj.(*resource.EventFilter); !ok || t.user == nil || !a.mayList(t.user, config.Entities.String(), t.namespace) {
		return nil
	}
	return references.Labels(a.opts.Config.Snapshot(), obj)
}

// unseen says which names in a definition were not looked at, because its author may not list what they would name.
func unseen(obj any, may func(resource string) bool) string {
	var things, lists []string
	add := func(list []string, one string) []string {
		if slices.Contains(list, one) {
			return list
		}
		return append(list, one)
	}
	for _, r := range references.Named(obj) {
		if may(r.Resource) {
			continue
		}
		lists = add(lists, r.Resource)
		if r.Resource == config.Entities.String() || r.Resource == config.RoleBindings.String() { // subscriptions and groups
			things = add(things, r.What+"s")
		} else {
			things = add(things, r.Resource)
		}
	}
	if len(things) == 0 {
		return ""
	}
	return fmt.Sprintf("whether %s exist was not looked at, since you may not list all %s", joined(things), joined(lists))
}

// maxMissingNames bounds the missing names in a warning.
const maxMissingNames = 20

// missingReferences warns the author of a definition about the names in it that name nothing, as far as the author may list
// what they would name: otherwise the warning would tell what there is.
func (a *API) missingReferences(t *act, obj any) string {
	if t.user == nil {
		return ""
	}
	var texts []string
	saysSo := false
	switch obj.(type) {
	case *resource.CheckConfig, *resource.Silenced, *resource.Calendar: // they say what a missing calendar means
		saysSo = true
	}
	may, more := a.mayListEach(t.user), 0
	t.unseen = unseen(obj, func(resource string) bool { return seesNamed(may, resource, t.namespace) })
	for _, m := range references.Find(a.opts.Config.Snapshot(), obj) {
		switch {
		case saysSo && m.Resource == config.Calendars.String(), !seesNamed(may, m.Resource, t.namespace):
		case len(texts) == maxMissingNames:
			more++
		default:
			texts = append(texts, m.String())
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more names do not exist", more))
	}
	return strings.Join(texts, "; ")
}

package api

import (
	"net/http"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/references"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveLint adds what is doubtful about the stored definitions. Users see findings about the kinds that they may list, if
// they tell about names of no other kinds.
func (a *API) serveLint() {
	a.route(ours+"namespaces/{namespace}/lint", access{open: true}, methods{http.MethodGet: a.lint})
}

func (a *API) lint(w *response, r *request) error {
	found := []resource.LintFinding{}
	known := map[[2]string]bool{}
	may := func(resource, namespace string) bool {
		key := [2]string{resource, namespaceOf(resource, namespace)}
		allowed, asked := known[key]
		if !asked {
			allowed = a.mayList(r.user, key[0], key[1])
			known[key] = allowed
		}
		return allowed
	}
	for _, f := range references.Lint(a.opts.Config.Snapshot(), inNamespace(r)) {
		if may(f.Resource, f.Namespace) && (f.Names == "" || may(f.Names, f.Namespace)) {
			found = append(found, f)
		}
	}
	return w.object(found)
}

// namespaceOf returns the namespace of what a definition names: of users and cluster roles there is none.
func namespaceOf(resource, namespace string) string {
	if resource == config.ClusterRoles.String() || resource == config.Users.String() {
		return ""
	}
	return namespace
}

func (a *API) mayList(user *auth.Identity, resource, namespace string) bool {
	return a.opts.Auth.Permit(user, auth.Attributes{Verb: "list", Resource: resource, Namespace: namespace}).Whole()
}

// missingReferences warns the author of a definition about the names in it that name nothing, as far as the author may list
// what they would name: otherwise the warning would tell what there is.
func (a *API) missingReferences(t *act, obj any) string {
	if t.user == nil {
		return ""
	}
	var texts []string
	for _, m := range references.Find(a.opts.Config.Snapshot(), obj) {
		if m.Resource == config.Calendars.String() {
			continue // checks and silences say what a missing calendar means
		}
		if a.mayList(t.user, m.Resource, namespaceOf(m.Resource, t.namespace)) {
			texts = append(texts, m.String())
		}
	}
	return strings.Join(texts, "; ")
}

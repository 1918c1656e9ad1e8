package api

import (
	"net/http"
	"strings"

	"github.com/lapwing-monitoring/lapwing/auth"
	"github.com/lapwing-monitoring/lapwing/references"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// serveLint adds what is doubtful about the stored definitions. Users see findings about the kinds that they may list.
func (a *API) serveLint() {
	a.route(ours+"namespaces/{namespace}/lint", access{open: true}, methods{http.MethodGet: a.lint})
}

func (a *API) lint(w *response, r *request) error {
	found := []resource.LintFinding{}
	may := map[[2]string]bool{}
	for _, f := range references.Lint(a.opts.Config.Snapshot(), inNamespace(r)) {
		key := [2]string{f.Resource, f.Namespace}
		allowed, known := may[key]
		if !known {
			allowed = a.mayList(r.user, f.Resource, f.Namespace)
			may[key] = allowed
		}
		if allowed {
			found = append(found, f)
		}
	}
	return w.object(found)
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
		namespace := t.namespace
		switch m.Resource {
		case "clusterroles", "users":
			namespace = ""
		case "calendars":
			continue // checks and silences say what a missing calendar means
		}
		if a.mayList(t.user, m.Resource, namespace) {
			texts = append(texts, m.String())
		}
	}
	return strings.Join(texts, "; ")
}

package api

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// publicPaths need no sign-in. A new one needs a reason.
var publicPaths = map[string]bool{
	"/api/lapwing/v1/session": true,                                                                // to sign the page in
	"/auth":                   true, "/auth/test": true, "/auth/token": true, "/auth/logout": true, // to sign in
	"/health": true, "/ready": true, "/version": true, "/metrics": true, // for load balancers and monitoring
	"/api/lapwing/v1/acknowledge/{token}": true, // the token is the right
	// For a browser without a token.
	"/api/lapwing/v1/auth/providers":                   true,
	"/api/enterprise/authentication/v2/oidc/authorize": true,
	"/api/enterprise/authentication/v2/oidc/callback":  true,
	"/api/enterprise/authentication/v2/oidc/token":     true,
}

// openPaths are for every user who has signed in: what the user sees follows from the roles.
var openPaths = map[string]bool{
	"GET /api/core/v2/namespaces":                          true,
	"GET /api/lapwing/v1/auth/can-i":                       true,
	"GET /api/lapwing/v1/auth/rights":                      true,
	"GET /api/lapwing/v1/openapi.json":                     true,
	"GET /api/lapwing/v1/live":                             true, // each stream is checked by itself
	"POST /api/enterprise/prune/v1alpha":                   true,
	"GET /api/lapwing/v1/namespaces/{namespace}/lint":      true,
	"GET /api/lapwing/v1/namespaces/{namespace}/referrers": true,
	// Each kind, or each object, is checked by itself.
	"GET /api/lapwing/v1/namespaces/{namespace}/config/stream":     true,
	"POST /api/lapwing/v1/namespaces/{namespace}/bulk":             true,
	"POST /api/lapwing/v1/namespaces/{namespace}/silenced/preview": true,
	"POST /api/lapwing/v1/namespaces/{namespace}/silenced/purge":   true,
	// Each event is checked by itself.
	"POST /api/lapwing/v1/namespaces/{namespace}/events/explain": true,
	// The event and each draft are checked by themselves.
	"POST /api/lapwing/v1/namespaces/{namespace}/pipelines/simulate": true,
	// The events, each draft, pipeline and handler are checked by themselves.
	"POST /api/lapwing/v1/namespaces/{namespace}/pipeline/replay": true,
	// The rights limit which series an answer has.
	"GET /api/lapwing/v1/graphite/{path...}":    true,
	"POST /api/lapwing/v1/graphite/{path...}":   true,
	"GET /api/lapwing/v1/prometheus/{path...}":  true,
	"POST /api/lapwing/v1/prometheus/{path...}": true,
}

// visible are the paths that any right may show: users see each namespace in which they may get something.
var visible = map[string]bool{"GET /api/core/v2/namespaces/{name}": true}

// asked has the checks of roles for methods of paths, written from the specification and not from the code: the verb
// follows from the method and the resource from the path, with these exceptions.
var asked = map[string]struct{ verb, resource string }{
	"GET /api/core/v2/namespaces/{namespace}/events/{entity}":                       {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/events/stream":                      {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/entities/view":                      {"list", "entities"},
	"GET /api/lapwing/v1/namespaces/{namespace}/entities/view/stream":               {"list", "entities"},
	"GET /api/lapwing/v1/namespaces/{namespace}/entities/map":                       {"list", "entities"},
	"GET /api/lapwing/v1/namespaces/{namespace}/events/view":                        {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/events/untold":                      {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/events/view/stream":                 {"list", "events"},
	"GET /api/core/v2/silenced/checks/{check}":                                      {"list", "silenced"},
	"GET /api/core/v2/namespaces/{namespace}/silenced/checks/{check}":               {"list", "silenced"},
	"GET /api/core/v2/namespaces/{namespace}/silenced/subscriptions/{subscription}": {"list", "silenced"},
	"GET /api/core/v3/namespaces/{namespace}/entity-configs":                        {"list", "entities"},
	"GET /api/core/v3/entity-configs":                                               {"list", "entities"},
	"POST /api/core/v3/namespaces/{namespace}/entity-configs":                       {"create", "entities"},
	"GET /api/core/v3/namespaces/{namespace}/entity-configs/{name}":                 {"get", "entities"},
	"PUT /api/core/v3/namespaces/{namespace}/entity-configs/{name}":                 {"update", "entities"},
	"PATCH /api/core/v3/namespaces/{namespace}/entity-configs/{name}":               {"update", "entities"},
	"DELETE /api/core/v3/namespaces/{namespace}/entity-configs/{name}":              {"delete", "entities"},
	"GET /api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/history":    {"get", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/reports/availability":               {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/reports/response":                   {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/reports/noisiest":                   {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/reports/incidents":                  {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/reports/flapping":                   {"list", "events"},
	"POST /api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/ack":       {"create", "silenced"},
	"DELETE /api/lapwing/v1/namespaces/{namespace}/events/{entity}/{check}/ack":     {"delete", "silenced"},
	"GET /api/lapwing/v1/namespaces/{namespace}/checks/lateness":                    {"list", "checks"},
	"GET /api/lapwing/v1/namespaces/{namespace}/events/lateness":                    {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/notifications":                      {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/orphans":                            {"list", "events"},
	"GET /api/lapwing/v1/namespaces/{namespace}/waiting":                            {"list", "deadletters"},
	"POST /api/lapwing/v1/namespaces/{namespace}/waiting/retry":                     {"create", "deadletters"},
	"GET /api/lapwing/v1/namespaces/{namespace}/queue":                              {"list", "checks"},
	"GET /api/lapwing/v1/namespaces/{namespace}/queue/{name}":                       {"get", "checks"},
	"GET /api/lapwing/v1/namespaces/{namespace}/subscriptions":                      {"list", "entities"},
	"GET /api/lapwing/v1/namespaces/{namespace}/subscriptions/{name}":               {"list", "entities"},
	"GET /api/lapwing/v1/namespaces/{namespace}/oncall":                             {"list", "rotas"},
	"GET /api/lapwing/v1/namespaces/{namespace}/escalations":                        {"list", "events"},
	"DELETE /api/lapwing/v1/namespaces/{namespace}/orphans":                         {"delete", "events"},
	"GET /api/lapwing/v1/postgres":                                                  {"get", "cluster"},
	"GET /api/lapwing/v1/cluster":                                                   {"get", "cluster"},
	"GET /api/lapwing/v1/log-level":                                                 {"get", "cluster"},
	"POST /api/lapwing/v1/log-level":                                                {"create", "cluster"},
	"DELETE /api/lapwing/v1/log-level":                                              {"delete", "cluster"},
	"GET /api/lapwing/v1/drain":                                                     {"get", "cluster"},
	"POST /api/lapwing/v1/drain":                                                    {"create", "cluster"},
	"DELETE /api/lapwing/v1/drain":                                                  {"delete", "cluster"},
	"POST /api/lapwing/v1/backup":                                                   {"*", "*"},
}

// TestEveryRouteAuthorises requests every method of every path without credentials, as a user without roles, with roles
// for everything except what it needs, and with a role for just that.
func TestEveryRouteAuthorises(t *testing.T) {
	s := newServer(t, nil)
	nobody, picky := s.user("nobody"), s.user("picky", "picky")
	asks := 0
	for _, rt := range s.routes {
		path := pathParameter.ReplaceAllStringFunc(rt.pattern, func(p string) string {
			if p == "{namespace}" {
				return "default"
			}
			return "x"
		})
		for method := range rt.methods {
			what := method + " " + rt.pattern
			if publicPaths[rt.pattern] {
				continue
			}
			asks++
			if got := s.ask(method, path, ""); got != http.StatusUnauthorized {
				t.Errorf("%s without credentials: %d, want 401", what, got)
			}
			if openPaths[what] {
				continue
			}
			if got := s.ask(method, path, nobody); got != http.StatusForbidden {
				t.Errorf("%s without a role: %d, want 403", what, got)
			}
			verb, res := needed(method, rt.pattern)
			s.grant("picky", "", allBut(verb, res)...)
			if got := s.ask(method, path, picky); got != http.StatusForbidden && !visible[what] {
				t.Errorf("%s with all rights but to %s %s: %d, want 403", what, verb, res, got)
			}
			s.grant("picky", "", resource.Rule{Verbs: []string{verb}, Resources: []string{res}})
			if got := s.ask(method, path, picky); got == http.StatusForbidden || got == http.StatusUnauthorized || got >= 500 {
				t.Errorf("%s with the right to %s %s and no other: %d", what, verb, res, got)
			}
		}
	}
	if asks < 50 {
		t.Errorf("only %d methods of paths were asked", asks)
	}
}

var pathParameter = regexp.MustCompile(`\{[a-z]+(\.\.\.)?\}`)

// needed returns the right that a method of a path needs.
func needed(method, pattern string) (verb, res string) {
	if a, ok := asked[method+" "+pattern]; ok {
		return a.verb, a.resource
	}
	pattern = strings.Replace(pattern, "/enterprise/authentication/", "/authentication/", 1)
	pattern = strings.Replace(pattern, "/enterprise/store/", "/store/", 1)
	parts := strings.Split(strings.TrimPrefix(pattern, "/api/"), "/")[2:] // without group and version
	if len(parts) > 2 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
		parts = parts[2:]
	}
	res = parts[0]
	switch method {
	case http.MethodPost:
		return "create", res
	case http.MethodPut, http.MethodPatch:
		return "update", res
	case http.MethodDelete:
		return "delete", res
	}
	if len(parts) == 1 {
		return "list", res
	}
	return "get", res
}

// allBut returns rules for all known resources and verbs except for one verb on one resource.
func allBut(verb, res string) []resource.Rule {
	verbs := []string{"get", "list", "create", "update", "delete"}
	resources := []string{
		"aggregates", "calendars", "contacts", "rotas", "metricchecks", "assets", "checks", "entities", "events", "filters", "handlers", "hooks", "mutators",
		"pipelines", "fallbackPipeline", "silenced", "roles",
		"rolebindings", "namespaces", "clusterroles", "clusterrolebindings", "users", "apikeys", "authproviders", "provider", "audit", "prune",
		"tessen", "cluster", "cluster-members", "entity-configs", "deadletters",
	}
	var rules []resource.Rule
	for _, r := range resources {
		rule := resource.Rule{Resources: []string{r}}
		for _, v := range verbs {
			if r != res || v != verb {
				rule.Verbs = append(rule.Verbs, v)
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// ask returns the status of the answer. It does not wait for the end of a stream.
func (s *server) ask(method, path, token string) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestRoutesAreRoutes finds paths that do not go through API.route, which checks credentials and roles.
func TestRoutesAreRoutes(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		n := strings.Count(string(text), "mux.Handle")
		if n > 0 && file != "route.go" && file != "api.go" && file != "dryrun.go" {
			t.Errorf("%s serves a path by itself: use API.route", file)
		}
		found += n
	}
	if found != 3 { // API.route, the prefix of dry runs, which leads to it, and the fallback for all other paths
		t.Errorf("%d calls of mux.Handle, want 3", found)
	}
}

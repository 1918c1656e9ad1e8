package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/api/openapi"
	"github.com/lapwing-monitoring/lapwing/client"
)

// TestClientFitsTheDocument compares the paths of package client with the document, and reads one object of each kind
// with it.
func TestClientFitsTheDocument(t *testing.T) {
	s := newServer(t, nil)
	s.putExamples()
	c, err := client.New(client.Options{URL: s.url, Tokens: client.Tokens{AccessToken: s.token}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	documented := func(method, path string) bool {
		for pattern, methods := range doc.Paths {
			re := regexp.MustCompile("^" + pathParameter.ReplaceAllString(pattern, "[^/]+") + "$")
			if re.MatchString(path) && methods[strings.ToLower(method)] != nil {
				return true
			}
		}
		return false
	}
	tried := 0
	check := func(k client.Kind[json.RawMessage], name string) {
		t.Helper()
		namespace := ""
		if k.Namespaced {
			namespace = "default"
		}
		for method, path := range map[string]string{
			"GET": k.Path(namespace, ""), "POST": k.Path(namespace, ""), "PUT": k.Path(namespace, name), "DELETE": k.Path(namespace, name),
		} {
			if made := method != "POST" || k.Kind != client.PostgresConfigs.Kind; made && !documented(method, path) {
				t.Errorf("the client's %s %s is not in the document", method, path)
			}
		}
		all, err := client.List(t.Context(), c, k, namespace, client.ListOptions{})
		if err != nil || len(all) == 0 {
			t.Errorf("list %s: %d, %v", k.Plural, len(all), err)
		}
		if _, err := client.Get(t.Context(), c, k, namespace, name); err != nil {
			t.Errorf("get %s %s: %v", k.Plural, name, err)
		}
		tried++
	}
	check(client.Kind[json.RawMessage](client.Namespaces), "example")
	check(client.Kind[json.RawMessage](client.ClusterRoles), "example")
	check(client.Kind[json.RawMessage](client.ClusterRoleBindings), "example")
	check(client.Kind[json.RawMessage](client.Users), "example")
	check(client.Kind[json.RawMessage](client.Aggregates), "example")
	check(client.Kind[json.RawMessage](client.Assets), "example")
	check(client.Kind[json.RawMessage](client.Calendars), "example")
	check(client.Kind[json.RawMessage](client.Contacts), "example")
	check(client.Kind[json.RawMessage](client.Rotas), "example")
	check(client.Kind[json.RawMessage](client.Checks), "example")
	check(client.Kind[json.RawMessage](client.Entities), "example")
	check(client.Kind[json.RawMessage](client.Events), client.EventName("example", "example"))
	check(client.Kind[json.RawMessage](client.FallbackPipelines), "example")
	check(client.Kind[json.RawMessage](client.Filters), "example")
	check(client.Kind[json.RawMessage](client.Handlers), "example")
	check(client.Kind[json.RawMessage](client.Hooks), "example")
	check(client.Kind[json.RawMessage](client.Mutators), "example")
	check(client.Kind[json.RawMessage](client.MetricChecks), "example")
	check(client.Kind[json.RawMessage](client.Pipelines), "example")
	check(client.Kind[json.RawMessage](client.PostgresConfigs), "example")
	check(client.Kind[json.RawMessage](client.Roles), "example")
	check(client.Kind[json.RawMessage](client.RoleBindings), "example")
	check(client.Kind[json.RawMessage](client.Silences), "linux:example")
	if tried < len(examples) {
		t.Errorf("%d kinds were tried, and there are %d examples", tried, len(examples))
	}
	if documented(http.MethodPut, "/api/core/v2/nothing") {
		t.Error("everything is documented")
	}
}

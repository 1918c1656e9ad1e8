package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestRolesLimitedByLabels has two teams in one namespace. Each may do anything to objects with its own label.
func TestRolesLimitedByLabels(t *testing.T) {
	s := newServer(t, nil)
	limited := func(group, selector string) string {
		s.grant(group, "default", resource.Rule{Verbs: []string{"*"},
			Resources: []string{"checks", "entities", "events", "handlers"}, LabelSelector: selector})
		return "Bearer " + s.user("of-"+group, group)
	}
	red, blue := limited("red", "team == red"), limited("blue", "team == blue")
	const base = "/api/core/v2/namespaces/default/"
	check := func(name, team string) string {
		return fmt.Sprintf(`{"metadata":{"name":"%s","namespace":"default","labels":{"team":"%s"}},"command":"true","interval":10,"subscriptions":["x"],"handlers":[]}`, name, team)
	}
	entity := func(name, team string) string {
		return fmt.Sprintf(`{"metadata":{"name":"%s","namespace":"default","labels":{"team":"%s"}},"entity_class":"proxy"}`, name, team)
	}
	event := func(entity, labels string) string {
		return fmt.Sprintf(`{"metadata":{"labels":%s},"entity":{"metadata":{"name":"%s","labels":%s}},"check":{"metadata":{"name":"disk"},"interval":10,"status":1}}`, labels, entity, labels)
	}
	for _, tc := range []struct {
		who, method, path, body string
		status                  int
	}{
		// making
		{red, "POST", "checks", check("r1", "red"), 201},
		{red, "POST", "checks", check("b0", "blue"), 403},
		{red, "POST", "checks", `{"metadata":{"name":"none"},"command":"true","interval":10,"subscriptions":["x"],"handlers":[]}`, 403},
		{blue, "PUT", "checks/b1", check("b1", "blue"), 201},
		{blue, "PUT", "checks/b2", check("b2", "red"), 403},
		// seeing
		{red, "GET", "checks/r1", "", 200},
		{red, "GET", "checks/b1", "", 404},
		{red, "GET", "checks/nothing", "", 404},
		// changing: neither another team's object, nor one's own into another team's
		{red, "PUT", "checks/b1", check("b1", "red"), 403},
		{red, "PUT", "checks/r1", check("r1", "blue"), 403},
		{red, "PUT", "checks/r1", check("r1", "red"), 201},
		{red, "PATCH", "checks/b1", `{"interval":20}`, 404},
		{red, "PATCH", "checks/r1", `{"metadata":{"labels":{"team":"blue"}}}`, 403},
		{red, "PATCH", "checks/r1", `{"interval":20}`, 200},
		{red, "DELETE", "checks/b1", "", 404},
		{blue, "DELETE", "checks/b1", "", 204},
		{blue, "POST", "checks", check("b9", "blue"), 201},
		{red, "PUT", "checks/b9/hooks/critical", `{"critical":["h"]}`, 404},
		// entities
		{red, "PUT", "entities/web1", entity("web1", "red"), 200},
		{blue, "PUT", "entities/web1", entity("web1", "blue"), 403},
		{blue, "POST", "entities", entity("web2", "blue"), 200},
		{blue, "POST", "entities", entity("web3", "red"), 403},
		{blue, "PATCH", "entities/web1", `{"metadata":{"labels":{"team":"blue"}}}`, 404},
		{blue, "GET", "entities/web1", "", 404},
		{blue, "DELETE", "entities/web1", "", 404},
		// events, whose labels include their entity's
		{red, "POST", "events", event("web1", `{}`), 403}, // has no team label
		{red, "PUT", "events/web1/disk", event("web1", `{"team":"red"}`), 201},
		{red, "PUT", "events/web2/disk", event("web2", `{"team":"red"}`), 403}, // an event cannot claim another team's entity
		{blue, "PUT", "events/web1/disk", event("web1", `{"team":"blue"}`), 403},
		{blue, "PUT", "events/web2/disk", event("web2", `{"team":"blue"}`), 201},
		{blue, "GET", "events/web2/disk", "", 200},
		{red, "GET", "events/web2/disk", "", 404},
		{red, "DELETE", "events/web2/disk", "", 404},
		// kinds without limits by labels
		{red, "GET", "silenced", "", 403},
		{red, "POST", "checks/b9/execute", `{}`, 404},
	} {
		contentType := jsonType
		if tc.method == "PATCH" {
			contentType = mergePatchType
		}
		a := s.do(tc.method, base+tc.path, tc.body, "Authorization", tc.who, "Content-Type", contentType)
		if a.status != tc.status {
			team := map[string]string{red: "red", blue: "blue"}[tc.who]
			t.Errorf("%s: %s %s: %d %s, want %d", team, tc.method, tc.path, a.status, a.body, tc.status)
		}
	}

	names := func(who, path string) (out []string) {
		var list []struct {
			Metadata struct{ Name string }
			Entity   *struct{ Metadata struct{ Name string } }
		}
		a := s.do(http.MethodGet, path, "", "Authorization", who)
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		for _, one := range list {
			if one.Entity != nil {
				one.Metadata.Name = one.Entity.Metadata.Name
			}
			out = append(out, one.Metadata.Name)
		}
		return out
	}
	for path, want := range map[string][2][]string{
		"checks": {{"r1"}, {"b9"}}, "entities": {{"web1"}, {"web2"}}, "events": {{"web1"}, {"web2"}},
		"entities?labelSelector=team%20==%20blue": {nil, {"web2"}}, "events?limit=1": {{"web1"}, {"web2"}},
	} {
		for i, who := range []string{red, blue} {
			if got := names(who, base+path); !slices.Equal(got, want[i]) {
				t.Errorf("%s of team %d: %v, want %v", path, i, got, want[i])
			}
		}
	}
	if got := names("Bearer "+s.token, base+"events"); len(got) != 2 {
		t.Errorf("without a limit: %v", got)
	}

	// The live stream and bulk actions make the same checks.
	l := s.follow("/api/lapwing/v1/namespaces/default/events/stream", strings.TrimPrefix(red, "Bearer "), "")
	l.wants("event default/web1/disk 1", "synced")
	if r := s.bulkDo(bulkPath, `{"resource":"events","action":"delete","all":true}`, "Authorization", red); r.Matched != 1 || r.Done != 1 {
		t.Errorf("bulk: %+v", r)
	}
	l.wants("delete default/web1/disk")
}

// TestUnreadableLimits: a rule with an invalid selector allows nothing.
func TestUnreadableLimits(t *testing.T) {
	s := newServer(t, nil)
	s.grant("odd", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"*"}, LabelSelector: "=="})
	if got := s.ask(http.MethodGet, "/api/core/v2/namespaces/default/checks", s.user("odd", "odd")); got != http.StatusForbidden {
		t.Errorf("%d, want 403", got)
	}
}

// TestRefusalsNameTheLabels: a refusal names the label that is missing or has another value. It does not show the
// labels of stored objects.
func TestRefusalsNameTheLabels(t *testing.T) {
	s := newServer(t, nil)
	s.grant("red", "default", resource.Rule{
		Verbs: []string{"*"}, Resources: []string{"checks", "entities", "events", "silenced"},
		LabelSelector: "team == red && tier in [web, db]",
	})
	red := "Bearer " + s.user("of-red", "red")
	const base = "/api/core/v2/namespaces/default/"
	labelled := func(kind, name, labels string) string {
		more := map[string]string{
			"checks": `,"command":"true","interval":10,"subscriptions":["x"]`, "entities": `,"entity_class":"proxy"`,
			"silenced": `,"check":"disk","subscription":"x"`,
		}[kind]
		return fmt.Sprintf(`{"metadata":{"name":"%s","namespace":"default","labels":%s}%s}`, name, labels, more)
	}
	event := func(labels string) string {
		return fmt.Sprintf(`{"metadata":{"labels":%s},"entity":{"metadata":{"name":"theirs"}},"check":{"metadata":{"name":"disk"},"interval":10}}`, labels)
	}
	const mine, others, bare = `{"team":"red","tier":"db"}`, `{"team":"secret blue","tier":"web"}`, `{}`
	for _, kind := range []string{"checks", "entities"} {
		s.do("PUT", base+kind+"/theirs", labelled(kind, "theirs", others))
		s.do("PUT", base+kind+"/ours", labelled(kind, "ours", mine), "Authorization", red)
	}
	for _, tc := range []struct{ method, path, body, says string }{
		{"POST", "checks", labelled("checks", "new", bare), "metadata.labels has no team and no tier"},
		{"PUT", "checks/new", labelled("checks", "new", `{"team":"red"}`), "metadata.labels has team: red and no tier"},
		{"PUT", "checks/theirs", labelled("checks", "theirs", mine), "the stored object does not match"},
		{"PATCH", "checks/ours", `{"metadata":{"labels":{"team":"blue"}}}`, "metadata.labels has team: blue and tier: db"},
		{"POST", "entities", labelled("entities", "new", bare), "metadata.labels has no team and no tier"},
		{"PUT", "entities/theirs", labelled("entities", "theirs", mine), "the stored object does not match"},
		{"PATCH", "entities/ours", `{"metadata":{"labels":{"tier":null}}}`, "metadata.labels has team: red and no tier"},
		{"POST", "silenced", labelled("silenced", "x:disk", bare), "metadata.labels has no team and no tier"},
		{"PUT", "silenced/x:disk", labelled("silenced", "x:disk", `{"tier":"web"}`), "metadata.labels has no team and tier: web"},
		{"PUT", "events/theirs/disk", event(bare), "metadata.labels has no team and no tier"},
		{"PUT", "events/theirs/disk", event(mine), "the stored object does not match"},
	} {
		contentType := jsonType
		if tc.method == "PATCH" {
			contentType = mergePatchType
		}
		s.do(tc.method, base+tc.path, tc.body, "Authorization", red, "Content-Type", contentType).refuses(403, codeDenied,
			"unauthorized to perform action: your role's rule is limited to team == red && tier in [web, db], and "+tc.says)
	}
	s.do("GET", base+"handlers", "", "Authorization", red).refuses(403, codeDenied, "unauthorized to perform action")
}

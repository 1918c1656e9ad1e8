package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestLintTellsNoNames: findings that tell about names of a resource are for users that may list it.
func TestLintTellsNoNames(t *testing.T) {
	s := newServer(t, nil)
	meta := func(name string) resource.ObjectMeta {
		return resource.ObjectMeta{Namespace: "default", Name: name}
	}
	for _, err := range []error{
		config.Put(t.Context(), s.store, config.Filters, &resource.EventFilter{Metadata: meta("hours"), Action: "allow", Expressions: []string{"true"}}),
		config.Put(t.Context(), s.store, config.Handlers, &resource.Handler{Metadata: meta("mail"), Type: "pipe", Command: "x", Filters: []string{"huors"}}),
		config.Put(t.Context(), s.store, config.Contacts, &resource.Contact{Metadata: meta("eve"), User: "admni", Handlers: []string{"mail"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	few := resource.Rule{Verbs: []string{"list"}, Resources: []string{"handlers", "contacts"}}
	s.grant("few", "default", few)
	more := few
	more.Resources = append(more.Resources, "filters")
	s.grant("more", "default", more)
	for group, want := range map[string][2]bool{"few": {false, false}, "more": {true, false}, "cluster-admins": {true, true}} {
		a := s.do("GET", "/api/lapwing/v1/namespaces/default/lint", "", "Authorization", "Bearer "+s.user(group+"1", group)).is(http.StatusOK)
		got := [2]bool{strings.Contains(a.body, "(hours?)"), strings.Contains(a.body, "(admin?)")}
		if got != want {
			t.Errorf("%s sees names of filters and users: %v, want %v\n%s", group, got, want, a.body)
		}
	}
}

// TestLintUnseen: a user who may not list a kind is told that it was not looked at.
func TestLintUnseen(t *testing.T) {
	s := newServer(t, nil)
	list := func(resources ...string) resource.Rule {
		return resource.Rule{Verbs: []string{"list"}, Resources: resources}
	}
	s.grant("few", "default", list("handlers", "checks"))
	s.grant("all", "default", list("*"))
	unseen := func(namespace, group string) (resources []string) {
		var found []resource.LintFinding
		s.do("GET", "/api/lapwing/v1/namespaces/"+namespace+"/lint", "", "Authorization", "Bearer "+s.user(group+namespace, group)).
			is(http.StatusOK).has(&found)
		for _, f := range found {
			if f.Severity == "unseen" {
				resources = append(resources, f.Resource)
			}
		}
		return resources
	}
	few := unseen("default", "few")
	for resource, want := range map[string]bool{"handlers": false, "checks": false, "filters": true, "pipelines": true, "silenced": true, "events": false} {
		if got := slices.Contains(few, resource); got != want {
			t.Errorf("few: %s unseen %v, want %v", resource, got, want)
		}
	}
	if got := unseen("default", "all"); got != nil {
		t.Errorf("a user who may list all of the namespace does not see %q", got)
	}
	if got := unseen("-", "all"); !slices.Contains(got, "checks") {
		t.Errorf("of all namespaces only %q is unseen", got)
	}
	if got := unseen("-", "cluster-admins"); got != nil {
		t.Errorf("an administrator does not see %q", got)
	}
}

// TestReferrers: what names a definition, of kinds that the user may list, in its namespace.
func TestReferrers(t *testing.T) {
	s := newServer(t, nil)
	meta := func(namespace, name string) resource.ObjectMeta {
		return resource.ObjectMeta{Namespace: namespace, Name: name}
	}
	for _, err := range []error{
		config.Put(t.Context(), s.store, config.Handlers, &resource.Handler{Metadata: meta("default", "all"), Type: "set", Handlers: []string{"slack"}}),
		config.Put(t.Context(), s.store, config.Checks, &resource.CheckConfig{Metadata: meta("default", "b1"), Handlers: []string{"slack"},
			OutputMetricHandlers: []string{"slack"}, RuntimeAssets: []string{"ops/tools"}}),
		config.Put(t.Context(), s.store, config.Checks, &resource.CheckConfig{Metadata: meta("dev", "b2"), Handlers: []string{"slack"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	few := resource.Rule{Verbs: []string{"list"}, Resources: []string{"checks"}}
	s.grant("few", "default", few)
	for _, c := range []struct{ group, query, want string }{
		{"cluster-admins", "?to=handlers/slack", "CheckConfig b1 handler slack, Handler all handler slack"},
		{"cluster-admins", "?to=assets/ops/tools&to=handlers/mail", "CheckConfig b1 asset ops/tools"},
		{"cluster-admins", "?to=checks/slack", ""},
		{"cluster-admins", "", ""},
		{"few", "?to=handlers/slack", "CheckConfig b1 handler slack"},
	} {
		a := s.do("GET", "/api/lapwing/v1/namespaces/default/referrers"+c.query, "", "Authorization",
			"Bearer "+s.user(c.group+"1", c.group)).is(http.StatusOK)
		var answer resource.Referrers
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range answer.Referrers {
			got = append(got, strings.Join([]string{r.Type, r.Name, r.What, r.Named}, " "))
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s %s: %q, want %q", c.group, c.query, got, c.want)
		}
	}
	s.do("GET", "/api/lapwing/v1/namespaces/default/referrers?to=slack", "").is(http.StatusBadRequest)
}

// TestManyReferrers: an answer has a thousand referrers at most, of each name its part, and says how many it leaves out.
func TestManyReferrers(t *testing.T) {
	s := newServer(t, nil)
	for i := range mostReferrers + 5 {
		c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", i)}, Handlers: []string{"slack"}}
		if i < 2 {
			c.Handlers = append(c.Handlers, "mail")
		}
		if err := config.Put(t.Context(), s.store, config.Checks, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		query       string
		listed, out int
	}{
		{"?to=handlers/slack", 1000, 5},
		{"?to=handlers/slack&to=handlers/mail", 502, 505},
		{"?to=handlers/mail", 2, 0},
	} {
		a := s.do("GET", "/api/lapwing/v1/namespaces/default/referrers"+c.query, "").is(http.StatusOK)
		var got resource.Referrers
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Referrers) != c.listed || got.More["handlers/slack"] != c.out || got.More["handlers/mail"] != 0 {
			t.Errorf("%s: %d listed, more %v; want %d and %d", c.query, len(got.Referrers), got.More, c.listed, c.out)
		}
	}
}

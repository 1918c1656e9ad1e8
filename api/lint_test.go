package api

import (
	"net/http"
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

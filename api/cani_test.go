package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestCanI(t *testing.T) {
	s := newServer(t, nil)
	bob := s.user("bob", "ops")
	s.grant("ops", "dev",
		resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"checks"}},
		resource.Rule{Verbs: []string{"delete"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	ask := func(token, query string) (canIAnswer, int) {
		t.Helper()
		a := s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?"+query, "", "Authorization", "Bearer "+token)
		var out canIAnswer
		if a.status == http.StatusOK {
			if err := json.Unmarshal([]byte(a.body), &out); err != nil {
				t.Fatal(err)
			}
		}
		return out, a.status
	}
	for _, tc := range []struct {
		token, query string
		status       int
		allowed      bool
		by           string
	}{
		{s.token, "verb=delete&resource=users&name=bob", 200, true, "ClusterRoleBinding cluster-admin"},
		{bob, "verb=get&resource=checks&name=cpu&namespace=dev", 200, true, "RoleBinding ops"},
		{bob, "verb=get&resource=checks&name=cpu&namespace=prod", 200, false, ""},
		{bob, "verb=list&resource=checks", 200, false, ""},
		{bob, "verb=delete&resource=events&name=a/b&namespace=dev", 200, true, "RoleBinding ops"},
		{s.token, "verb=get&resource=checks&namespace=dev&as=bob", 200, true, "RoleBinding ops"},
		{s.token, "verb=get&resource=checks&namespace=default&as=bob", 200, false, ""},
		{s.token, "verb=get&resource=localselfuser&name=bob&as=bob", 200, true, "ClusterRoleBinding system:user"},
		{s.token, "verb=get&resource=checks&namespace=dev&as=stranger&group=ops", 200, true, "RoleBinding ops"},
		{s.token, "verb=get&resource=checks&as=nobody", 404, false, ""},
		{bob, "verb=get&resource=checks&as=admin", 403, false, ""},
		{bob, "verb=get&resource=checks&group=cluster-admins", 403, false, ""},
		{bob, "verb=watch&resource=checks", 400, false, ""},
		{bob, "verb=get", 400, false, ""},
	} {
		got, status := ask(tc.token, tc.query)
		by := ""
		if got.Binding != nil {
			by = got.Binding.Type + " " + got.Binding.Name
		}
		if status != tc.status || got.Allowed != tc.allowed || by != tc.by {
			t.Errorf("%s: %d %+v by %q, want %d %v by %q", tc.query, status, got, by, tc.status, tc.allowed, tc.by)
		}
		if limited := strings.Contains(tc.query, "delete&resource=events"); limited != (len(got.LabelSelectors) == 1) {
			t.Errorf("%s: label selectors %q", tc.query, got.LabelSelectors)
		}
	}
}

// TestCanIOfStoredObjects: the labels of the named object decide, if there is one; a misspelt resource is told.
func TestCanIOfStoredObjects(t *testing.T) {
	s := newServer(t, nil)
	rita := s.user("rita", "reds")
	s.grant("reds", "default", resource.Rule{
		Verbs: []string{"get", "create", "list"}, Resources: []string{"checks", "events"}, LabelSelector: "team == red"})
	const spec = `"command":"x","interval":60,"subscriptions":["s"],"handlers":[]`
	for name, team := range map[string]string{"shop": "blue", "mine": "red"} {
		s.do("PUT", "/api/core/v2/namespaces/default/checks/"+name,
			`{"metadata":{"name":"`+name+`","namespace":"default","labels":{"team":"`+team+`"}},`+spec+`}`).is(http.StatusCreated)
	}
	for query, want := range map[string]bool{
		"verb=get&resource=checks&name=shop": false, "verb=get&resource=checks&name=mine": true, "verb=get&resource=checks&name=new": true,
		"verb=create&resource=checks&name=shop": true, "verb=get&resource=checks": true, "verb=get&resource=events&name=a/b": true,
	} {
		a := s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?namespace=default&"+query, "", "Authorization", "Bearer "+rita).is(http.StatusOK)
		var out canIAnswer
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatal(err)
		}
		if out.Allowed != want || len(out.LabelSelectors) != 1 || want != (out.Binding != nil) {
			t.Errorf("%s: %+v", query, out)
		}
		if got := a.header.Get("Warning"); got != "" {
			t.Errorf("%s: warning %s", query, got)
		}
	}
	a := s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?verb=list&resource=chekcs", "").is(http.StatusOK)
	if got := a.header.Get("Warning"); !strings.Contains(got, "chekcs is not known") || !strings.Contains(got, "is checks)") {
		t.Errorf("warning %q", got)
	}
}

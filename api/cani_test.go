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

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/auth"
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

// TestCanIOfStoredObjects: the labels of the named object decide, if there is one.
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
		"verb=get&resource=checks&name=shop": true, "verb=get&resource=checks&name=mine": true, "verb=get&resource=checks&name=new": true,
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
		if out.Note != "" {
			t.Errorf("%s: note %s", query, out.Note)
		}
	}
	// An object that the asking user may not see is answered as one that does not exist, also about other users.
	s.grant("readers", "default", resource.Rule{Verbs: []string{"get"}, Resources: []string{"checks"}},
		resource.Rule{Verbs: []string{"delete"}, Resources: []string{"checks"}, LabelSelector: "team == red"})
	s.grant("snoops", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"users"}})
	snoop, reader := s.user("snoop", "snoops"), s.user("reader", "readers")
	for _, tc := range []struct {
		token, query string
		allowed      bool
	}{
		{reader, "verb=delete&resource=checks&name=shop", false},
		{reader, "verb=delete&resource=checks&name=none", true},
		{s.token, "verb=get&resource=checks&name=shop&as=rita", false},
		{snoop, "verb=get&resource=checks&name=shop&as=rita", true},
		{snoop, "verb=get&resource=checks&name=none&as=rita", true},
	} {
		var out canIAnswer
		s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?namespace=default&"+tc.query, "", "Authorization", "Bearer "+tc.token).is(http.StatusOK).has(&out)
		if out.Allowed != tc.allowed || len(out.LabelSelectors) != 1 {
			t.Errorf("%s: %+v", tc.query, out)
		}
	}
}

// TestCanINotes: the answer says what else to know.
func TestCanINotes(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"red"}`).is(http.StatusCreated)
	rita := s.user("rita", "reds")
	s.grant("reds", "red", resource.Rule{Verbs: []string{"*"}, Resources: []string{"*"}})
	lima := s.user("lima", "limited")
	s.grant("limited", "", resource.Rule{Verbs: []string{"*"}, Resources: []string{"*"}, LabelSelector: "team == red"})
	for _, tc := range []struct {
		token, query, want string
		unknown            bool
	}{
		{s.token, "resource=chekcs", "chekcs is not known: no request asks for it (the nearest known name is checks)", true},
		{s.token, "resource=notifications", "(notifications need rights on events)", true},
		{s.token, "resource=notification", "(notifications need rights on events)", true},
		{s.token, "resource=waiting", "(waiting need rights on deadletters)", true},
		{s.token, "resource=auditlog", "(the nearest known name is audit)", true},
		{s.token, "resource=nonsense", "no request asks for it", true},
		{s.token, "resource=events&namespace=rde", "namespace rde does not exist, or you may not see it (the nearest name is red)", false},
		{rita, "resource=events&namespace=default", "namespace default does not exist, or you may not see it", false},
		{rita, "resource=events&namespace=red", "", false},
		{rita, "resource=users&namespace=red", "users belong to the whole cluster: only ClusterRoleBindings count", false},
		{rita, "resource=namespaces", "the list has the namespaces in which", false},
		{lima, "resource=audit&namespace=red", "the resource audit has no labels: rules limited by labels do not count", false},
		{lima, "resource=users", "only ClusterRoleBindings count; the resource users has no labels", false},
		{lima, "resource=events&namespace=red", "", false},
		{lima, "resource=*", "not for resources without labels: apikeys, audit, authproviders, cluster, deadletters, ", false},
	} {
		var out canIAnswer
		s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?verb=list&"+tc.query, "", "Authorization", "Bearer "+tc.token).
			is(http.StatusOK).has(&out)
		if !strings.Contains(out.Note, tc.want) || tc.want == "" && out.Note != "" || out.Unknown != tc.unknown {
			t.Errorf("%s: %+v, want a note with %q", tc.query, out, tc.want)
		}
	}
	s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?verb=ack&resource=events", "").
		refuses(http.StatusBadRequest, codeInvalid, `verb must be one of get, list, create, update and delete, not "ack": `+
			"to acknowledge is create on silenced")
}

// TestCanIAnswersAsRoutes compares the answers with those of all routes that read: for a user with all rights in one
// namespace, one with all rights in the whole cluster, one with all of them limited by labels, and one with none.
func TestCanIAnswersAsRoutes(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"red"}`).is(http.StatusCreated)
	all := resource.Rule{Verbs: []string{"*"}, Resources: []string{"*"}}
	s.grant("reds", "red", all)
	s.grant("roots", "", all)
	limited := all
	limited.LabelSelector = "team == red"
	s.grant("limited", "", limited)
	tokens := map[string]string{
		"rita": s.user("rita", "reds"), "root": s.user("root", "roots"), "nora": s.user("nora"), "lima": s.user("lima", "limited"),
	}
	ask := func(token, verb, resource, name, namespace string) bool {
		t.Helper()
		q := url.Values{"verb": {verb}, "resource": {resource}, "namespace": {namespace}}
		if name != "" {
			q.Set("name", name)
		}
		var out canIAnswer
		s.do(http.MethodGet, "/api/lapwing/v1/auth/can-i?"+q.Encode(), "", "Authorization", "Bearer "+token).is(http.StatusOK).has(&out)
		return out.Allowed
	}
	seen := map[string]int{}
	for user, token := range tokens {
		for i := range s.routes {
			rt := &s.routes[i]
			if rt.resource == "" || rt.methods[http.MethodGet] == nil || strings.Contains(rt.pattern, "{stream") {
				continue
			}
			path := pathParameter.ReplaceAllStringFunc(rt.pattern, func(word string) string {
				if word == "{namespace}" {
					return "red"
				}
				return "x"
			})
			hr := httptest.NewRequest(http.MethodGet, path, nil)
			for _, word := range pathParameter.FindAllString(rt.pattern, -1) {
				value := "x"
				if word == "{namespace}" {
					value = "red"
				}
				hr.SetPathValue(strings.Trim(word, "{.}"), value)
			}
			at := rt.attributes(&request{Request: hr, act: &act{user: &auth.Identity{}}})
			namespace := "red"
			if !strings.Contains(rt.pattern, "{namespace}") && !s.clusterWide(at.Resource) {
				namespace = "-" // all at once
			}
			if user == "lima" && !rt.labels && s.unlabelled([]string{at.Resource}) == nil {
				continue // it needs the right for all objects, and the answer tells the labels
			}
			ctx, cancel := context.WithCancel(t.Context()) // some routes stream
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := s.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			cancel()
			served := resp.StatusCode != http.StatusForbidden
			if got := ask(token, at.Verb, at.Resource, at.Name, namespace); got != served {
				t.Errorf("%s: can-i %s %s %s in %s: %v, and GET %s is %d", user, at.Verb, at.Resource, at.Name, namespace, got, path,
					resp.StatusCode)
			}
			seen[user]++
		}
		for _, name := range []string{"red", "default", "nope"} {
			served := s.do(http.MethodGet, "/api/core/v2/namespaces/"+name, "", "Authorization", "Bearer "+token).status != http.StatusForbidden
			if got := ask(token, "get", "namespaces", name, "red"); got != served {
				t.Errorf("%s: can-i get namespaces %s: %v", user, name, got)
			}
		}
		if !ask(token, "list", "namespaces", "", "red") || !ask(token, "get", "users", user, "red") {
			t.Errorf("%s: lists of namespaces, or the user's own, are refused", user)
		}
	}
	if seen["rita"] < 50 || seen["lima"] < 50 {
		t.Errorf("routes compared: %v", seen)
	}
}

// TestRightsWithoutLabels: of a rule that is limited by labels, the answer names the resources without labels.
func TestRightsWithoutLabels(t *testing.T) {
	s := newServer(t, nil)
	s.grant("reds", "default",
		resource.Rule{Verbs: []string{"list"}, Resources: []string{"checks", "deadletters", "nonsense", "audit"}, LabelSelector: "team == red"},
		resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}, LabelSelector: "team == red"},
		resource.Rule{Verbs: []string{"list"}, Resources: []string{"deadletters"}},
		resource.Rule{Verbs: []string{"get"}, Resources: []string{"*"}, LabelSelector: "team == red"})
	var got rightsAnswer
	s.do(http.MethodGet, "/api/lapwing/v1/auth/rights?namespace=default", "", "Authorization", "Bearer "+s.user("rita", "reds")).
		is(http.StatusOK).has(&got)
	var lists []string
	for _, r := range got.Rights {
		if r.Binding.Name == "reds" {
			lists = append(lists, strings.Join(r.Unlabelled, " "))
		}
	}
	want := []string{"audit deadletters", "", "", "apikeys audit authproviders cluster deadletters metrics namespaces tessen users"}
	if !slices.Equal(lists, want) {
		t.Errorf("got %q, want %q", lists, want)
	}
}

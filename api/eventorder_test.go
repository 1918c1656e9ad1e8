package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestListOrderedEvents(t *testing.T) {
	s := newServer(t, nil)
	put := func(entity string, status int) {
		t.Helper()
		s.do(http.MethodPut, eventsPath+"/"+entity+"/disk",
			fmt.Sprintf(`{"check":{"status":%d},"entity":{"metadata":{"name":"%s"}}}`, status, entity)).is(201)
	}
	for _, name := range []string{"c", "a", "b"} {
		put(name, 2)
	}
	put("c", 2) // no change
	put("d", 0)
	s.do(http.MethodPost, "/api/lapwing/v1/namespaces/default/events/b/disk/ack", `{"comment":"at it"}`).is(201)
	for _, tc := range []struct{ query, field, want string }{
		{"order=name", "", "default/a/disk default/b/disk default/c/disk default/d/disk"},
		{"changed_since=1h", "event.check.state != passing", "default/a/disk default/b/disk default/c/disk"},
		{"changed_since=2100-01-01T00:00:00Z", "", ""},
		{"acknowledged=true", "", "default/b/disk"},
		{"acknowledged=false&limit=2", "", "default/a/disk default/c/disk"},
	} {
		query := selectors("", tc.field) + "&" + tc.query
		if !strings.HasPrefix(query, "?") {
			query = "?" + strings.TrimPrefix(query, "&")
		}
		a := s.do(http.MethodGet, eventsPath+query, "").is(200)
		if got := a.names(); got != tc.want {
			t.Errorf("%s: %s, want %s", query, got, tc.want)
		}
	}
	// The newest change first: by the times that the histories say. Two may be in one millisecond.
	changed := func(name string) (at time.Time) {
		var changes []stateChange
		s.do(http.MethodGet, "/api/lapwing/v1/namespaces/default/events/"+strings.TrimPrefix(name, "default/")+"/history", "").is(200).has(&changes)
		return changes[0].Time.Truncate(time.Millisecond)
	}
	newest := strings.Fields(s.do(http.MethodGet, eventsPath+"?order=changed", "").names())
	if len(newest) != 4 {
		t.Fatalf("in the order of changes: %v", newest)
	}
	for i := 1; i < len(newest); i++ {
		if changed(newest[i-1]).Before(changed(newest[i])) {
			t.Errorf("%v: %s changed before %s", newest, newest[i-1], newest[i])
		}
	}
	if got := s.do(http.MethodGet, eventsPath+"?order=changed&limit=2", "").names(); got != strings.Join(newest[:2], " ") {
		t.Errorf("the newest two: %s, want %v", got, newest[:2])
	}
	for query, want := range map[string]string{
		"order=newest":      `order must be name or changed, not "newest"`,
		"acknowledged=yeah": `acknowledged must be true or false, not "yeah"`,
		"changed_since=x":   `"x" is no time: it must be in RFC 3339, in Unix seconds, or how long ago, as in 2h or 30d`,
	} {
		s.do(http.MethodGet, eventsPath+"?"+query, "").refuses(400, codeInvalid, want)
	}
}

func TestRights(t *testing.T) {
	s := newServer(t, nil)
	bob := s.user("bob", "ops")
	s.grant("ops", "dev",
		resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"checks"}, ResourceNames: []string{"a", "b"}},
		resource.Rule{Verbs: []string{"delete"}, Resources: []string{"events"}, LabelSelector: "region == eu"})
	const path = "/api/lapwing/v1/auth/rights"
	ask := func(token, query string) *answer {
		return s.do(http.MethodGet, path+query, "", "Authorization", "Bearer "+token)
	}
	for _, tc := range []struct {
		token, query string
		has          []string
		hasNot       string
	}{
		{bob, "?namespace=dev", []string{
			`{"verbs":["get","list"],"resources":["checks"],"resource_names":["a","b"],"binding":{"type":"RoleBinding","namespace":"dev","name":"ops"}`,
			`"label_selector":"region == eu"`, `"resources":["localselfuser"]`}, "cluster-admin"},
		{bob, "?namespace=default", []string{`"resources":["localselfuser"]`}, `"checks"`},
		{bob, "", []string{`"namespace":""`}, `"checks"`},
		{s.token, "?namespace=dev&as=bob", []string{`"user":"bob"`, `"resource_names":["a","b"]`}, "cluster-admin"},
		{s.token, "?namespace=dev&as=x&group=ops", []string{`"label_selector":"region == eu"`}, "localselfuser"},
	} {
		a := ask(tc.token, tc.query).is(200)
		for _, want := range tc.has {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: %s lacks %s", tc.query, a.body, want)
			}
		}
		if strings.Contains(a.body, tc.hasNot) {
			t.Errorf("%s: %s has %s", tc.query, a.body, tc.hasNot)
		}
	}
	ask(bob, "?as=admin").is(403)
	ask(s.token, "?as=stranger").is(404)
}

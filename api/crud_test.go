package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestWritesOfDefinitions(t *testing.T) {
	s := newServer(t, nil)
	const handlers = "/api/core/v2/namespaces/default/handlers"
	for _, tc := range []struct {
		method, path, body string
		status, code       int
		message            string
	}{
		{"POST", checksPath, `{"metadata":{"name":"a"},"interval":1}`, 201, 0, ""}, // the namespace is the URL's
		{"POST", checksPath, checkBody("a", ""), 409, codeExists, "resource already exists"},
		{"POST", checksPath, `{"metadata":{"name":"b","namespace":"dev"},"interval":1}`, 400, codeInvalid,
			"the namespace of the resource (dev) does not match the namespace of the URI (default)"},
		{"PUT", checksPath + "/b", checkBody("a", ""), 400, codeInvalid,
			"the name of the resource (a) does not match the name of the URI (b)"},
		{"PUT", checksPath + "/b", `{"metadata":{},"interval":1}`, 400, codeInvalid,
			"the name of the resource () does not match the name of the URI (b)"},
		{"PUT", checksPath + "/b", `{"metadata":{"name":"b"}}`, 400, codeInvalid,
			"resource is invalid: check interval must be greater than 0 or a valid cron schedule must be provided"},
		{"PUT", checksPath + "/b", checkBody("b", ""), 201, 0, ""},
		{"PUT", checksPath + "/b", checkBody("b", `,"timeout":5`), 201, 0, ""},
		{"POST", "/api/core/v2/namespaces/nope/checks", `{"metadata":{"name":"a"},"interval":1}`, 404, codeNotFound,
			"the namespace nope does not exist"},
		{"PUT", "/api/core/v2/namespaces/nope/checks/a", `{"metadata":{"name":"a"},"interval":1}`, 404, codeNotFound,
			"the namespace nope does not exist"},
		{"POST", handlers, `{"metadata":{"name":"h"},"type":"pipe","command":"cat"}`, 201, 0, ""},
		{"POST", handlers, `{"metadata":{"name":"h"},"type":"smoke"}`, 400, codeInvalid,
			"resource is invalid: unknown handler type: smoke"},
		{"DELETE", handlers + "/h", "", 204, 0, ""},
		{"DELETE", handlers + "/h", "", 404, codeNotFound, "not found"},
	} {
		got := s.do(tc.method, tc.path, tc.body).is(tc.status)
		if tc.message != "" {
			got.refuses(tc.status, tc.code, tc.message)
			continue
		}
		if got.body != "" || got.header.Get("Content-Type") != jsonType {
			t.Errorf("%s %s: body %q of type %q", tc.method, tc.path, got.body, got.header.Get("Content-Type"))
		}
	}
	c, _ := config.Get(s.store.Snapshot(), config.Checks, "default", "b")
	if c.Timeout != 5 || c.Metadata.CreatedBy != admin {
		t.Errorf("stored check: %+v", c)
	}
}

func TestWhoCreatedItIsNotForTheClientToSay(t *testing.T) {
	s := newServer(t, nil)
	s.grant("ops", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"*"}})
	bob := "Bearer " + s.user("bob", "ops")
	const forged = `{"metadata":{"name":"a","created_by":"alice"},"interval":1}`
	by := func(want string) {
		t.Helper()
		if c, _ := config.Get(s.store.Snapshot(), config.Checks, "default", "a"); c.Metadata.CreatedBy != want {
			t.Errorf("created by %q, want %q", c.Metadata.CreatedBy, want)
		}
	}
	s.do("POST", checksPath, forged, "Authorization", bob).is(201)
	by("bob")
	s.do("PATCH", checksPath+"/a", `{"metadata":{"created_by":"alice"}}`, "Content-Type", mergePatchType).is(200)
	by("bob")
	s.do("PUT", checksPath+"/a", forged).is(201)
	by(admin)
}

func TestPatch(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, `{"metadata":{"name":"a","labels":{"x":"1","y":"2"}},"command":"c","interval":10,"subscriptions":["s"],"handlers":["h"]}`).is(201)
	patch := func(body string, headers ...string) *answer {
		t.Helper()
		return s.do("PATCH", checksPath+"/a", body, append([]string{"Content-Type", mergePatchType}, headers...)...)
	}
	var c resource.CheckConfig
	patch(`{"metadata":{"labels":{"x":null,"z":"3"}},"command":null,"handlers":null,"subscriptions":["t"]}`).is(200).has(&c)
	if got := fmt.Sprintf("%v %q %q %q", c.Metadata.Labels, c.Command, c.Handlers, c.Subscriptions); got != `map[y:2 z:3] "" [] ["t"]` {
		t.Errorf("patched: %s", got)
	}
	patch(`{"interval":0}`).refuses(400, codeInvalid, "check interval must be greater than 0 or a valid cron schedule must be provided")
	patch(`{"metadata":{"name":"b"}}`).refuses(400, codeInvalid, "the name of the resource (b) does not match the name in the URI (a)")
	patch(`{"metadata":{"namespace":"dev"}}`).refuses(400, codeInvalid,
		"the namespace of the resource (dev) does not match the namespace in the URI (default)")
	patch(`{"interval":"ten"}`).is(400)
	patch(`[]`).is(400)
	patch(`{`).is(400)
	patch("").is(400)
	patch(`{"timeout":3}`, "Content-Type", mergePatchType+"; charset=utf-8").is(200)
	patch(`{"timeout":4}`, "Content-Type", "").refuses(400, codeInvalid,
		"invalid Content-Type header: .  Allowed values: application/merge-patch+json")
	patch(`{"timeout":4}`, "Content-Type", "text/plain").refuses(400, codeInvalid,
		"invalid Content-Type header: text/plain.  Allowed values: application/merge-patch+json")
	s.do("PATCH", checksPath+"/missing", `{}`, "Content-Type", mergePatchType).refuses(404, codeNotFound, "not found")
	if got, _ := config.Get(s.store.Snapshot(), config.Checks, "default", "a"); got.Timeout != 3 || got.Interval != 10 {
		t.Errorf("stored check: %+v", got)
	}
}

func TestEntityTags(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("a", "")).is(201)
	tag := func() string {
		t.Helper()
		return s.do("GET", checksPath+"/a", "").is(200).header.Get("Etag")
	}
	old := tag()
	got := s.do("GET", checksPath+"/a", "", "If-None-Match", old).is(304)
	if got.body != "" || got.header.Get("Etag") != old {
		t.Errorf("304 with body %q and tag %q", got.body, got.header.Get("Etag"))
	}
	s.do("GET", checksPath+"/a", "", "If-None-Match", `"0", W/`+old).is(304)
	s.do("GET", checksPath+"/a", "", "If-None-Match", `"0"`).is(200)

	patch := func(header, value string, status int) {
		t.Helper()
		got := s.do("PATCH", checksPath+"/a", `{"metadata":{"annotations":{"`+strings.Repeat("x", status)+`":"y"}}}`,
			"Content-Type", mergePatchType, header, value)
		got.is(status)
		if status == 412 {
			got.refuses(412, codePrecondition, errPrecondition.message)
		}
	}
	patch("If-Match", `"0"`, 412)
	patch("If-Match", strings.Trim(old, `"`), 412) // not a tag
	patch("If-Match", "W/"+old, 412)
	patch("If-None-Match", old, 412)
	patch("If-None-Match", "W/"+old, 412)
	patch("If-None-Match", "*", 412)
	if tag() != old {
		t.Fatal("a refused patch changed the check")
	}
	patch("If-None-Match", `"0"`, 200)
	if tag() == old {
		t.Error("the tag did not change with the check")
	}
	patch("If-Match", "*", 200)
	patch("If-Match", `"0", `+tag(), 200)

	// The answer of a PATCH has the tag that the next GET has, and equal content has equal tags.
	a := s.do("PATCH", checksPath+"/a", `{"command":"<&>"}`, "Content-Type", mergePatchType).header.Get("Etag")
	if a != tag() {
		t.Errorf("PATCH has tag %s, GET %s", a, tag())
	}
	s.do("PATCH", checksPath+"/a", `{"command":"x"}`, "Content-Type", mergePatchType).is(200)
	s.do("PATCH", checksPath+"/a", `{"command":"<&>"}`, "Content-Type", mergePatchType).is(200)
	if a != tag() {
		t.Error("the same content has another tag")
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		header       string
		strong, weak bool
	}{
		{`"a"`, true, true},
		{`W/"a"`, false, true},
		{`*`, true, true},
		{` "x" , "a"`, true, true},
		{`"x","a"`, true, true},
		{`,,"a"`, true, true},
		{`"a`, false, false},
		{`a`, false, false},
		{`a, "a"`, true, true},
		{`"a,b"`, false, false},
		{`"x, "a"`, false, false}, // the tag is `x, `
		{`w/"a"`, false, false},
		{``, false, false},
	} {
		if got := matches([]string{tc.header}, false, []string{`"a"`}); got != tc.strong {
			t.Errorf("%q matches strongly: %v", tc.header, got)
		}
		if got := matches([]string{tc.header}, true, []string{`"a"`}); got != tc.weak {
			t.Errorf("%q matches weakly: %v", tc.header, got)
		}
	}
}

func FuzzMatches(f *testing.F) {
	for _, s := range []string{`"a"`, `W/"a", *`, `"`, `W/`, `,`, `"x, "a"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if matches([]string{header}, false, []string{`"a"`}) && !matches([]string{header}, true, []string{`"a"`}) {
			t.Errorf("%q matches strongly but not weakly", header)
		}
	})
}

func TestConcurrentPatchesLoseNothing(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("a", "")).is(201)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				s.do("PATCH", checksPath+"/a", fmt.Sprintf(`{"metadata":{"labels":{"l%d-%d":"x"}}}`, i, j),
					"Content-Type", mergePatchType).is(200)
			}
		})
	}
	wg.Wait()
	c, _ := config.Get(s.store.Snapshot(), config.Checks, "default", "a")
	if len(c.Metadata.Labels) != 40 {
		t.Errorf("%d labels, want 40", len(c.Metadata.Labels))
	}
}

// pages follows a list to its end and returns the names page by page.
func (s *server) pages(path string, limit int) string {
	s.t.Helper()
	var pages []string
	next, query := "", "?"
	if strings.Contains(path, query) {
		query = "&"
	}
	for range 100 {
		got := s.do("GET", fmt.Sprintf("%s%slimit=%d&continue=%s", path, query, limit, url.QueryEscape(next)), "")
		pages = append(pages, got.names())
		if next = got.header.Get("Sensu-Continue"); next == "" {
			return strings.Join(pages, " | ")
		}
	}
	s.t.Fatal("the list has no end")
	return ""
}

func TestPages(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	for _, key := range []string{"dev/b", "dev/a", "default/c", "default/a", "default/b"} {
		namespace, name, _ := strings.Cut(key, "/")
		s.do("PUT", "/api/core/v2/namespaces/"+namespace+"/checks/"+name, `{"metadata":{"name":"`+name+`"},"interval":1}`).is(201)
		s.do("PUT", "/api/core/v2/namespaces/"+namespace+"/events/e"+name+"/c", `{"check":{"status":1}}`).is(201)
	}
	s.do("PUT", eventsPath+"/ea/a", `{"check":{}}`).is(201)
	s.do("PUT", eventsPath+"/ea/d", `{"check":{}}`).is(201)
	const all = "/api/core/v2/"
	for _, tc := range []struct {
		path  string
		limit int
		want  string
	}{
		{all + "checks", 0, "default/a default/b default/c dev/a dev/b"},
		{all + "checks", -1, "default/a default/b default/c dev/a dev/b"},
		{all + "checks", 2, "default/a default/b | default/c dev/a | dev/b"},
		{all + "checks", 5, "default/a default/b default/c dev/a dev/b"},
		{all + "checks", 1_000_000, "default/a default/b default/c dev/a dev/b"},
		{checksPath, 2, "default/a default/b | default/c"},
		{checksPath, 3, "default/a default/b default/c"},
		{all + "namespaces/nope/checks", 2, ""},
		{all + "entities", 2, "default/ea default/eb | default/ec dev/ea | dev/eb"},
		{all + "namespaces", 1, "default | dev | sensu-system"},
		{all + "users", 1, "admin | agent"},
		{all + "events", 0, "default/ea/a default/ea/c default/ea/d default/eb/c default/ec/c dev/ea/c dev/eb/c"},
		{all + "events", 4, "default/ea/a default/ea/c default/ea/d default/eb/c | default/ec/c dev/ea/c dev/eb/c"},
		{all + "events", 7, "default/ea/a default/ea/c default/ea/d default/eb/c default/ec/c dev/ea/c dev/eb/c"},
		{eventsPath, 3, "default/ea/a default/ea/c default/ea/d | default/eb/c default/ec/c"},
		{eventsPath + "/ea", 2, "default/ea/a default/ea/c | default/ea/d"},
		{eventsPath + "/nobody", 0, ""},
	} {
		if got := s.pages(tc.path, tc.limit); got != tc.want {
			t.Errorf("%s by %d: %s, want %s", tc.path, tc.limit, got, tc.want)
		}
	}
	for _, query := range []string{"?limit=x", "?continue=%21%21", "?continue=AAAA&limit=0", "?types=CheckConfig",
		"?labelSelector=&fieldSelector=%20"} {
		if got := s.do("GET", all+"checks"+query, "").names(); got != "default/a default/b default/c dev/a dev/b" {
			t.Errorf("%s: %s", query, got)
		}
	}
	if got := s.do("GET", all+"namespaces/nope/checks", "").is(http.StatusOK).body; got != "[]" {
		t.Errorf("an empty list is %s", got)
	}
}

func TestAPageGoesOnWhereAnObjectWasDeleted(t *testing.T) {
	s := newServer(t, nil)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.do("POST", checksPath, checkBody(name, "")).is(201)
	}
	next := s.do("GET", checksPath+"?limit=2", "").header.Get("Sensu-Continue")
	s.do("DELETE", checksPath+"/b", "").is(204)
	if got := s.do("GET", checksPath+"?continue="+next, "").names(); got != "default/c default/d" {
		t.Errorf("the second page is %s", got)
	}
}

func TestLongListsAreWhole(t *testing.T) {
	s := newServer(t, nil)
	long := strings.Repeat("x", 2000)
	for i := range 100 {
		c := &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%03d", i)},
			Command: long, Interval: 1}
		if err := config.Put(t.Context(), s.store, config.Checks, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, query := range []string{"", "?limit=100"} {
		var list []resource.CheckConfig
		s.do("GET", checksPath+query, "").is(200).has(&list)
		if len(list) != 100 || list[99].Metadata.Name != "c099" || list[99].Command != long {
			t.Errorf("%q: %d checks", query, len(list))
		}
	}
}

func TestNamespaces(t *testing.T) {
	s := newServer(t, nil)
	const path = "/api/core/v2/namespaces"
	s.do("POST", path, `{"name":"dev"}`).is(201)
	s.do("POST", path, `{"name":"dev"}`).refuses(409, codeExists, "resource already exists")
	s.do("PUT", path+"/prod", `{"name":"prod"}`).is(201)
	s.do("PUT", path+"/prod", `{"name":"prod"}`).is(201)
	s.do("PATCH", path+"/prod", `{"name":"other"}`, "Content-Type", mergePatchType).refuses(400, codeInvalid,
		"the name of the resource (other) does not match the name in the URI (prod)")
	s.do("GET", path+"/nope", "").refuses(404, codeNotFound, "not found")
	for _, ns := range []string{"dev", "prod"} {
		if _, ok := config.Get(s.store.Snapshot(), config.RoleBindings, ns, "system:pipeline"); !ok {
			t.Errorf("%s has no binding for pipelines", ns)
		}
	}

	s.grant("team", "dev", resource.Rule{Verbs: []string{"get"}, Resources: []string{"checks"}})
	s.do("POST", path+"/dev/checks", `{"metadata":{"name":"a"},"interval":1}`).is(201)
	s.do("DELETE", path+"/dev", "").refuses(400, codeInvalid, "resource is invalid: namespace is not empty")
	if _, ok := config.Get(s.store.Snapshot(), config.Roles, "dev", "team"); !ok {
		t.Error("a namespace that was not deleted has lost its roles")
	}
	s.do("DELETE", path+"/dev/checks/a", "").is(204)
	s.do("PUT", path+"/dev/events/web1/cpu", `{"check":{}}`).is(201) // makes an entity
	s.do("DELETE", path+"/dev", "").is(400)
	s.do("DELETE", path+"/dev/entities/web1", "").is(204)
	s.do("DELETE", path+"/dev", "").is(204)

	// A namespace that is made again inherits nothing.
	s.do("POST", path, `{"name":"dev"}`).is(201)
	if got := s.do("GET", path+"/dev/roles", "").names() + ", " +
		s.do("GET", path+"/dev/rolebindings", "").names(); got != "dev/system:pipeline, dev/system:pipeline" {
		t.Errorf("a new namespace has %s", got)
	}
}

func TestRoles(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	all := []string{"*"}
	s.grant("dev-all", "dev", resource.Rule{Verbs: all, Resources: all})
	s.grant("writer", "", resource.Rule{Verbs: []string{"create", "update"}, Resources: []string{"checks"}})
	s.grant("one-event", "", resource.Rule{Verbs: []string{"get", "list", "create", "delete"},
		Resources: []string{"events"}, ResourceNames: []string{"web1/cpu", "web1"}})
	s.grant("visitor", "", resource.Rule{Verbs: []string{"get"}, Resources: []string{"namespaces"}, ResourceNames: []string{"dev"}})
	s.grant("lister", "", resource.Rule{Verbs: []string{"list"}, Resources: []string{"events"}})
	tokens := map[string]string{
		"lister":  s.user("lister", "lister"),
		"dev":     s.user("dev", "dev-all"),
		"writer":  s.user("writer", "writer"),
		"event":   s.user("event", "one-event"),
		"visitor": s.user("visitor", "visitor"),
		"nobody":  s.user("nobody"),
	}
	const v, dev, def = "/api/core/v2", "/api/core/v2/namespaces/dev", "/api/core/v2/namespaces/default"
	check := `{"metadata":{"name":"c"},"interval":1}`
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
	}{
		{"dev", "POST", dev + "/checks", check, 201},
		{"dev", "GET", dev + "/checks/c", "", 200},
		{"dev", "GET", def + "/checks/c", "", 403},
		{"dev", "GET", v + "/checks", "", 403}, // nothing is filtered
		{"dev", "DELETE", dev, "", 403},        // a role in a namespace gives no right to delete it
		{"dev", "PUT", def + "/checks/c", `{"metadata":{"name":"c","namespace":"dev"},"interval":1}`, 403},
		{"dev", "PUT", dev + "/entities/x", `{"metadata":{"name":"x","namespace":"default"},"entity_class":"proxy"}`, 400},
		{"dev", "POST", dev + "/events", `{"entity":{"metadata":{"name":"x","namespace":"default"}},"check":{"metadata":{"name":"c"}}}`, 400},
		{"writer", "PUT", def + "/checks/c", check, 201},
		{"writer", "PATCH", def + "/checks/c", `{}`, 400}, // allowed, and then checked for its type
		{"writer", "GET", def + "/checks/c", "", 403},
		{"writer", "GET", def + "/checks/missing", "", 403}, // denied before the object is read
		{"writer", "DELETE", def + "/checks/c", "", 403},
		{"event", "POST", def + "/events/web1/cpu", `{"check":{}}`, 201},
		{"event", "PUT", def + "/events/web1/cpu", `{"check":{}}`, 403},
		{"event", "POST", def + "/events", `{"check":{}}`, 403},
		{"event", "GET", def + "/events/web1/cpu", "", 200},
		{"event", "GET", def + "/events/web1%2Fcpu", "", 200}, // the same name, compared decoded; there is no such entity
		{"event", "GET", def + "/events/web1", "", 200},
		{"event", "GET", def + "/events/web2", "", 403},
		{"event", "GET", def + "/events", "", 403},
		{"event", "DELETE", def + "/events/web1/cpu", "", 204},
		{"lister", "GET", def + "/events", "", 200},
		{"lister", "GET", def + "/events/web1", "", 200},
		{"lister", "GET", def + "/events/web1/cpu", "", 403},
		{"visitor", "GET", dev, "", 200},
		{"visitor", "GET", def, "", 403},
		{"visitor", "GET", v + "/namespaces/nope", "", 403}, // no probing of names
		{"visitor", "POST", v + "/namespaces", `{"name":"x"}`, 403},
		{"nobody", "GET", v + "/users/nobody", "", 200}, // oneself
		{"nobody", "GET", v + "/users/admin", "", 403},
		{"nobody", "GET", v + "/users", "", 403},
		{"nobody", "GET", "/api/lapwing/v1/namespaces/default/events/stream", "", 403},
		{"dev", "GET", "/api/lapwing/v1/namespaces/-/events/stream", "", 403},
	} {
		got := s.do(tc.method, tc.path, tc.body, "Authorization", "Bearer "+tokens[tc.user])
		if got.status != tc.status {
			t.Errorf("%s: %s %s: %d, want %d; %s", tc.user, tc.method, tc.path, got.status, tc.status, got.body)
		}
		if tc.status == 403 {
			got.refuses(403, codeDenied, "unauthorized to perform action")
		}
	}
	for user, want := range map[string]string{"dev": "dev", "writer": "", "event": "default dev sensu-system",
		"visitor": "dev", "nobody": ""} {
		if got := s.do("GET", v+"/namespaces", "", "Authorization", "Bearer "+tokens[user]).names(); got != want {
			t.Errorf("%s sees namespaces %q, want %q", user, got, want)
		}
	}
	var u map[string]any
	s.do("GET", v+"/users/dev", "").has(&u)
	if len(u) != 3 || u["username"] != "dev" || u["disabled"] != false {
		t.Errorf("a user is shown as %v", u)
	}
}

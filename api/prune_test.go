package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/internal/longtest"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/selector"
)

const prunePath = "/api/enterprise/prune/v1alpha?"

// pruneServer has checks and other objects that "create" made, and some that it did not.
func pruneServer(t *testing.T) *server {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	put := func(namespace, kind, name, labels, more string) {
		s.do("PUT", fmt.Sprintf("/api/core/v2/namespaces/%s/%s/%s", namespace, kind, segment(name)),
			fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"labels":{%s}}%s}`, name, namespace, labels, more)).is(201)
	}
	const made = `"sensu.io/managed_by":"sensuctl"`
	for _, name := range []string{"a", "b", "a:b"} {
		put("default", "checks", name, made+`,"tier":"1"`, `,"interval":10`)
	}
	// An object of an older release that did not refuse such names.
	if err := config.Put(t.Context(), s.store, config.Checks, &resource.CheckConfig{Interval: 10, Metadata: resource.ObjectMeta{
		Namespace: "default", Name: "..", Labels: map[string]string{"sensu.io/managed_by": "sensuctl", "tier": "1"}, CreatedBy: admin,
	}}); err != nil {
		t.Fatal(err)
	}
	put("default", "checks", "byhand", `"tier":"1"`, `,"interval":10`)
	put("default", "checks", "agents", `"sensu.io/managed_by":"sensu-agent"`, `,"interval":10`)
	put("dev", "checks", "a", made, `,"interval":10`)
	put("default", "handlers", "h", made, `,"type":"pipe","command":"x"`)
	s.do("PUT", "/api/core/v2/namespaces/default/entities/web",
		`{"metadata":{"name":"web","namespace":"default","labels":{`+made+`}},"entity_class":"proxy"}`).is(200)
	s.do("PUT", eventsPath+"/web/disk", `{"check":{}}`).is(201)
	if err := config.Put(t.Context(), s.store, config.ClusterRoles, &resource.ClusterRole{
		Metadata: resource.ObjectMeta{Name: "made", Labels: map[string]string{"sensu.io/managed_by": "sensuctl"}, CreatedBy: admin},
		Rules:    []resource.Rule{{Verbs: []string{"get"}, Resources: []string{"checks"}}},
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// pruned returns the objects that an answer names.
func (a *answer) pruned() string {
	a.t.Helper()
	var list []reference
	a.is(http.StatusCreated).has(&list)
	var out []string
	for _, o := range list {
		if o.APIVersion != "core/v2" {
			a.t.Errorf("API version %q", o.APIVersion)
		}
		out = append(out, o.Type+" "+o.Metadata.Namespace+"/"+o.Metadata.Name)
	}
	return strings.Join(out, ", ")
}

func TestPrune(t *testing.T) {
	s := pruneServer(t)
	dry := func(query, body string) string {
		t.Helper()
		return s.do("POST", prunePath+"dryRun=true&"+query, body).pruned()
	}
	const keepA = `{"type":"CheckConfig","api_version":"core/v2","metadata":{"name":"a","namespace":"default"},"spec":{}}`
	for _, tc := range []struct{ query, body, want string }{
		{"types=CheckConfig&namespaces=default", `[]`,
			"CheckConfig default/.., CheckConfig default/a, CheckConfig default/a:b, CheckConfig default/b"},
		{"types=core/v2.CheckConfig&namespaces=default", keepA, "CheckConfig default/.., CheckConfig default/a:b, CheckConfig default/b"},
		{"types=checks&namespaces=default", `[` + keepA +
			`,{"type":"CheckConfig","spec":{"metadata":{"name":"b"}}},{"type":"User","spec":{"username":"x"}}]`,
			"CheckConfig default/.., CheckConfig default/a:b"},
		{"types=checks&namespaces=default", keepA + "\n" + strings.ReplaceAll(keepA, `"a"`, `"b"`),
			"CheckConfig default/.., CheckConfig default/a:b"},
		{"types=checks&namespaces=default,dev", keepA,
			"CheckConfig default/.., CheckConfig default/a:b, CheckConfig default/b, CheckConfig dev/a"},
		{"types=checks&namespaces=dev&namespaces=dev", `[]`, "CheckConfig dev/a"},
		{"types=checks&namespaces=*", keepA, "CheckConfig default/.., CheckConfig default/a:b, CheckConfig default/b, CheckConfig dev/a"},
		{"types=checks,handlers&namespaces=default&labelSelector=" + url.QueryEscape("tier != 1"), `[]`, "Handler default/h"},
		{"types=all&namespaces=dev", `[]`, "CheckConfig dev/a"},
		{"types=clusterroles&namespaces=default", `[]`, ""},
		{"types=clusterroles&clusterWide=true", `[]`, "ClusterRole /made"},
		{"types=clusterroles&clusterWide=true", `{"type":"ClusterRole","metadata":{"name":"made"}}`, ""},
		{"types=clusterroles,checks&clusterWide=true&namespaces=dev", `[]`, "CheckConfig dev/a, ClusterRole /made"},
		{"types=entities&namespaces=default", `{"type":"EntityConfig","api_version":"core/v3","metadata":{"name":"other"}}`, "Entity default/web"},
		{"types=core/v3.EntityConfig&namespaces=default", `{"type":"EntityConfig","api_version":"core/v3","metadata":{"name":"web"}}`, ""},
		{"types=checks&namespaces=dev&users=ann", `[]`, ""},
		{"types=checks&namespaces=dev&users=ann,admin", `[]`, "CheckConfig dev/a"},
		{"types=checks&namespaces=dev&users=ann&allUsers=true", `[]`, "CheckConfig dev/a"},
	} {
		// The API does not say who made an entity, so entities count for all users.
		if strings.Contains(tc.query, "ntit") {
			tc.query += "&allUsers=true"
		}
		if got := dry(tc.query, tc.body); got != tc.want {
			t.Errorf("%s with %s: %s, want %s", tc.query, tc.body, got, tc.want)
		}
	}
	before := s.do("GET", "/api/core/v2/checks", "").names()

	const want = "CheckConfig default/.., CheckConfig default/a:b, CheckConfig default/b, Handler default/h, Entity default/web"
	if got := s.do("POST", prunePath+"types=checks,entities,handlers&namespaces=default&allUsers=1", keepA).pruned(); got != want {
		t.Errorf("deleted %s, want %s", got, want)
	}
	if got := s.do("GET", "/api/core/v2/checks", "").names(); got != "default/a default/agents default/byhand dev/a" {
		t.Errorf("of checks %s there are %s", before, got)
	}
	if got := s.do("GET", "/api/core/v2/handlers", "").names() + s.do("GET", "/api/core/v2/entities", "").names(); got != "" {
		t.Errorf("there are %s", got)
	}
	if got := s.do("GET", "/api/core/v2/events", "").names(); got != "" {
		t.Errorf("events of a pruned entity stay: %s", got)
	}
}

func TestPruneRefuses(t *testing.T) {
	s := pruneServer(t)
	for _, tc := range []struct{ query, body, message string }{
		{"namespaces=default", `[]`, "types to prune are required"},
		{"types=&namespaces=default", `[]`, "types to prune are required"},
		{"types=checks", `[]`, "namespaces to prune are required, unless clusterWide is set"},
		{"types=checks,events&namespaces=default", `[]`, `type "events" cannot be pruned`},
		{"types=checks&namespaces=default&dryRun=perhaps", `[]`, `dryRun is "perhaps", want true or false`},
		{"types=checks&namespaces=default&labelSelector=a", `[]`,
			"label selector: unexpected the end at character 2: ==, !=, in, notin, matches, =~, !~, <, <=, > or >= expected"},
		{"types=checks&namespaces=default", ``, "EOF"},
		{"types=checks&namespaces=default", `[{}]`, "a resource to keep has no type"},
		{"types=checks&namespaces=default", `{"type":"CheckConfig"}`, "a CheckConfig to keep has no name"},
		{"types=checks&namespaces=default,dev", `{"type":"CheckConfig","metadata":{"name":"a"}}`,
			"the CheckConfig a to keep has no namespace"},
		{"types=checks&namespaces=*", `{"type":"CheckConfig","metadata":{"name":"a"}}`, "the CheckConfig a to keep has no namespace"},
	} {
		s.do("POST", prunePath+tc.query, tc.body).refuses(400, codeInvalid, tc.message)
	}
	// Half a body must not count as everything to keep.
	s.do("POST", prunePath+"types=checks&namespaces=default", `[{"type":"CheckConfig","metadata":{"name":"a"}}`).is(400)
	s.do("POST", prunePath+"types=checks&namespaces=default", `{"type":"CheckConfig","metadata":{"name":"a"}} {"type":"Che`).is(400)
	if got := s.do("GET", "/api/core/v2/namespaces/default/checks", "").names(); len(strings.Fields(got)) != 6 {
		t.Errorf("checks %s are left", got)
	}
}

func TestPruneNeedsTheRightToDelete(t *testing.T) {
	s := pruneServer(t)
	rule := func(verb string, resources []string, names ...string) resource.Rule {
		return resource.Rule{Verbs: []string{verb}, Resources: resources, ResourceNames: names}
	}
	s.grant("readers", "", rule("get", []string{"*"}), rule("list", []string{"*"}))
	s.grant("deleters", "default", rule("delete", []string{"checks"}))
	s.grant("labelled", "default", resource.Rule{Verbs: []string{"delete"}, Resources: []string{"checks"}, LabelSelector: "tier == 2"})
	reader, deleter, labelled := s.user("reader", "readers"), s.user("deleter", "deleters"), s.user("labelled", "labelled")
	for _, tc := range []struct {
		token, query string
		status       int
	}{
		{"", "types=checks&namespaces=default&allUsers=true", 401},
		{reader, "types=checks&namespaces=default&allUsers=true", 403},
		{reader, "types=checks&namespaces=empty", 403},
		{labelled, "types=checks&namespaces=default&allUsers=true", 201}, // its role reaches none, and the answer shows none
		{deleter, "types=checks&namespaces=dev&allUsers=true", 403},
		{deleter, "types=checks&namespaces=*&allUsers=true", 403},
		{deleter, "types=handlers,checks&namespaces=default&allUsers=true", 403},
		{deleter, "types=clusterroles&clusterWide=true&allUsers=true", 403},
		{deleter, "types=checks&namespaces=default", 201}, // it made none
	} {
		authorization := ""
		if tc.token != "" {
			authorization = "Bearer " + tc.token
		}
		for _, dry := range []string{"&dryRun=true", ""} {
			s.do("POST", prunePath+tc.query+dry, `[]`, "Authorization", authorization).is(tc.status)
		}
	}
	if got := s.do("GET", "/api/core/v2/checks", "").names(); len(strings.Fields(got)) != 7 {
		t.Errorf("checks %s are left", got)
	}
	if got := s.do("POST", prunePath+"types=checks&namespaces=default&allUsers=true", `[]`, "Authorization",
		"Bearer "+deleter).pruned(); len(strings.Split(got, ", ")) != 4 {
		t.Errorf("deleted %s", got)
	}
}

// TestPruneTellsNothingOfWhatIsNotReached: a user whose role is limited by labels looks for the objects of others.
func TestPruneTellsNothingOfWhatIsNotReached(t *testing.T) {
	s := newServer(t, nil)
	put := func(kind, name, team, more string) {
		s.do("PUT", "/api/core/v2/namespaces/default/"+kind+"/"+name, fmt.Sprintf(
			`{"metadata":{"name":%q,"namespace":"default","labels":{"sensu.io/managed_by":"sensuctl","team":%q}}%s}`,
			name, team, more)).is(201)
	}
	limited := func(verb, selector string) resource.Rule {
		return resource.Rule{Verbs: []string{verb}, Resources: []string{"checks", "handlers"}, LabelSelector: selector}
	}
	s.grant("red", "default", limited("*", "team == red"))
	s.grant("watch", "default", limited("delete", "team == red"), limited("list", "team in [red, green]"))
	s.grant("named", "default", resource.Rule{Verbs: []string{"list", "delete"}, Resources: []string{"checks"},
		ResourceNames: []string{"r"}})
	prune := func(user, query string) *answer {
		return s.do("POST", prunePath+"types=checks,handlers&namespaces=default&allUsers=true"+query, `[]`, "Authorization", "Bearer "+user)
	}
	red, watch, named := s.user("red", "red"), s.user("watch", "watch"), s.user("named", "named")
	empty := prune(red, "").is(http.StatusCreated).body
	put("checks", "b", "blue", `,"interval":10`)
	put("handlers", "b", "blue", `,"type":"pipe","command":"x"`)
	for _, query := range []string{"", "&dryRun=true", "&labelSelector=" + url.QueryEscape("team == blue")} {
		for _, user := range []string{red, watch} {
			if got := prune(user, query).is(http.StatusCreated).body; got != empty {
				t.Errorf("%s: the answer tells of objects of others: %s", query, got)
			}
		}
	}
	put("checks", "r", "red", `,"interval":10`)
	if got := prune(red, "&dryRun=true").pruned(); got != "CheckConfig default/r" {
		t.Errorf("of the own objects: %s", got)
	}
	// An object that the user may see and not delete is refused as before, and so is a role without labels that does
	// not reach all.
	put("checks", "g", "green", `,"interval":10`)
	prune(watch, "").is(http.StatusForbidden)
	prune(named, "").is(http.StatusForbidden)
	if got := prune(red, "").pruned(); got != "CheckConfig default/r" {
		t.Errorf("deleted: %s", got)
	}
	if got := s.do("GET", "/api/core/v2/namespaces/default/checks", "").names(); got != "default/b default/g" {
		t.Errorf("there are %s", got)
	}
}

// TestPruneListsEachKindOnce deletes an object of each kind with each kind named twice.
func TestPruneListsEachKindOnce(t *testing.T) {
	s := newServer(t, nil)
	for i, k := range prunables {
		for _, other := range prunables[:i] {
			if k.Type == other.Type {
				t.Errorf("%s is there twice", k.Type)
			}
		}
	}
	for _, name := range []string{"f1", "f2"} {
		s.do("PUT", "/api/core/v2/namespaces/default/filters/"+name,
			`{"metadata":{"name":"`+name+`","namespace":"default","labels":{"sensu.io/managed_by":"sensuctl"}},"action":"allow","expressions":["true"]}`).is(201)
	}
	if got := s.do("POST", prunePath+"types=all&namespaces=default&dryRun=true",
		`[]`).pruned(); got != "EventFilter default/f1, EventFilter default/f2" {
		t.Errorf("pruned %s", got)
	}
}

// unread is a body of a request that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// TestPruneAuthorisesBeforeItReads sends bodies as users who may delete nothing.
func TestPruneAuthorisesBeforeItReads(t *testing.T) {
	s := pruneServer(t)
	s.grant("readers", "", resource.Rule{Verbs: []string{"get", "list"}, Resources: []string{"*"}})
	r := httptest.NewRequest(http.MethodPost, prunePath+"types=all&namespaces=default&allUsers=true", unread{t})
	r.Header.Set("Authorization", "Bearer "+s.user("reader", "readers"))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("status %d", w.Code)
	}
}

// manyKept returns a body with many resources to keep, generated while it is read.
func manyKept(n int) io.Reader {
	return io.MultiReader(strings.NewReader("["), &repeated{left: n,
		text: `{"type":"CheckConfig","metadata":{"name":"%08d","namespace":"default"}},`},
		strings.NewReader(`{"type":"CheckConfig","metadata":{"name":"a","namespace":"default"}}]`))
}

type repeated struct {
	left int
	text string
	rest []byte
}

func (r *repeated) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		r.left--
		r.rest = fmt.Appendf(nil, r.text, r.left)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// TestPruneStreams keeps resources in a body of 70 MB (12 MB without the tag long). Nothing of it may stay in memory.
func TestPruneStreams(t *testing.T) {
	s := pruneServer(t)
	url := prunePath + "types=checks&namespaces=default&dryRun=true"
	// The live heap is measured at the end of the body, when a parser that keeps it has all of it.
	var heap uint64
	measure := readerFunc(func([]byte) (int, error) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		heap = m.HeapAlloc
		return 0, io.EOF
	})
	send := func(body io.Reader) string {
		heap = 0
		r := httptest.NewRequest(http.MethodPost, url, io.MultiReader(body, measure))
		r.Header.Set("Authorization", "Bearer "+s.token)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return (&answer{t: t, status: w.Code, body: w.Body.String()}).pruned()
	}
	const want = "CheckConfig default/.., CheckConfig default/a:b, CheckConfig default/b"
	if got := send(manyKept(1)); got != want {
		t.Errorf("pruned %s", got)
	}
	before := heap
	if got := send(manyKept(longtest.Size(850_000, 150_000))); got != want {
		t.Errorf("pruned %s", got)
	}
	if heap > before+8<<20 {
		t.Errorf("%d bytes are kept of the body, more than 8 MiB", heap-before)
	}
	large := `[{"type":"CheckConfig","metadata":{"name":"a","namespace":"default"},"spec":{"command":"` +
		strings.Repeat("x", 600_000) + `"}}]`
	s.do("POST", url, large).refuses(400, codeInvalid, "one resource is larger than 512000 bytes (--api-request-limit)")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestPruneMatchesWhatTheUserSees: the selector matches the user's view of an object. At present requests only have
// label selectors, and labels are not hidden; a field selector could reveal secrets otherwise.
func TestPruneMatchesWhatTheUserSees(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", "/api/core/v2/namespaces/default/handlers/h",
		`{"metadata":{"name":"h","namespace":"default","labels":{"sensu.io/managed_by":"sensuctl"}},"type":"pipe","command":"x","env_vars":["TOKEN=s3cret"]}`).is(201)
	asked, err := selector.Parse("", "'TOKEN=s3cret' in handler.env_vars")
	if err != nil {
		t.Fatal(err)
	}
	p := &pruning{kinds: kindsNamed("handlers"), namespaces: []string{"default"}, selector: asked}
	sn := s.store.Snapshot()
	if n := len(p.objects(sn, func(obj any) any { return obj }).order); n != 1 {
		t.Errorf("who sees the secret finds %d handlers", n)
	}
	if n := len(p.objects(sn, func(obj any) any { return obj.(*resource.Handler).Redacted() }).order); n != 0 {
		t.Errorf("who does not see the secret finds %d handlers", n)
	}
}

// segment encodes a name in a path. Only dots would be taken for the directory above.
func segment(name string) string { return strings.ReplaceAll(url.PathEscape(name), ".", "%2E") }

package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const defaultPath = "/api/core/v2/namespaces/default/"

// simple has one valid object of each kind without special cases, and a patch that changes it.
var simple = []struct{ kind, body, patch string }{
	{"assets", `{"metadata":{"name":"x"},"url":"http://a","sha512":"` + strings.Repeat("0", 128) + `"}`, `{"url":"http://b"}`},
	{"checks", `{"metadata":{"name":"x"},"interval":1}`, `{"interval":2}`},
	{"filters", `{"metadata":{"name":"x"},"action":"allow","expressions":["event.check.status == 2"]}`, `{"action":"deny"}`},
	{"handlers", `{"metadata":{"name":"x"},"type":"pipe","command":"cat"}`, `{"command":"true"}`},
	{"hooks", `{"metadata":{"name":"x"},"command":"ps","timeout":10}`, `{"timeout":11}`},
	{"mutators", `{"metadata":{"name":"x"},"command":"jq ."}`, `{"command":"cat"}`},
	{"fallbackPipeline", `{"metadata":{"name":"x"},"pipelines":[{"name":"p","type":"Pipeline","api_version":"core/v2"}]}`, `{"pipelines":[{"name":"q","type":"Pipeline","api_version":"core/v2"}]}`},
	{"pipelines", `{"metadata":{"name":"x"},"workflows":[{"name":"w","handler":{"name":"h","type":"Handler","api_version":"core/v2"}}]}`, `{"workflows":null}`},
	{"roles", `{"metadata":{"name":"x"},"rules":[{"verbs":["get"],"resources":["checks"]}]}`,
		`{"rules":[{"verbs":["list"],"resources":["checks"]}]}`},
	{"rolebindings", `{"metadata":{"name":"x"},"role_ref":{"type":"Role","name":"r"},"subjects":[{"type":"User","name":"u"}]}`, `{"role_ref":{"name":"s"}}`},
}

// TestUnknownResourcesInRoles: roles with names that are no resource's are stored, with a warning.
func TestUnknownResourcesInRoles(t *testing.T) {
	s := newServer(t, nil)
	body := func(kind, resources string) string {
		namespace := ""
		if kind == "roles" {
			namespace = `,"namespace":"default"`
		}
		return `{"metadata":{"name":"r"` + namespace +
			`},"rules":[{"verbs":["get"],"resources":["events"]},{"verbs":["get"],"resources":` + resources + `}]}`
	}
	long := strings.Repeat("x", 200)
	for kind, path := range map[string]string{"roles": "/api/core/v2/namespaces/default/roles",
		"clusterroles": "/api/core/v2/clusterroles"} {
		for _, tc := range []struct {
			resources string
			want      []string // none for no warning
		}{
			{`["namespaces","authentication","extensions"]`, nil},
			{`["checks","events","*","entities","silenced","localselfuser","metrics","deadletters","audit","authproviders","searches","clusters"]`, nil},
			{`["evnts"]`, []string{"rule 1 names the resource evnts, which is not known", "nearest known name is events"}},
			{`["Checks","CheckConfig","entity"]`, []string{"resource Checks", "name is checks",
				"resource CheckConfig", "resource entity", "name is entities"}},
			{`["acme-widgets"]`, []string{"resource acme-widgets, which is not known: it allows nothing here"}},
			{`["` + long + `"]`, []string{"(200 bytes)"}},
			{`["a1","a2","a3","a4","a5","a6"]`, []string{"a5", "and others"}},
		} {
			a := s.do("PUT", path+"/r", body(kind, tc.resources)).is(http.StatusCreated)
			warning := a.header.Get("Warning")
			if (warning == "") != (tc.want == nil) || strings.Contains(warning, "name is )") || strings.Contains(warning, "name is *") {
				t.Errorf("%s %s: warning %s", kind, tc.resources, warning)
			}
			for _, part := range tc.want {
				if !strings.Contains(warning, part) {
					t.Errorf("%s %s: warning %s, want %s", kind, tc.resources, warning, part)
				}
			}
			var linted []resource.LintFinding
			s.do("GET", "/api/lapwing/v1/namespaces/default/lint", "").is(http.StatusOK).has(&linted)
			linted = slices.DeleteFunc(linted, func(f resource.LintFinding) bool { return f.Resource != kind || f.Severity != "warning" })
			if (len(linted) > 0) != (tc.want != nil) || len(linted) > 0 && (linted[0].Name != "r" || !strings.Contains(warning, linted[0].Text)) {
				t.Errorf("%s %s: lint finds %+v, the warning was %s", kind, tc.resources, linted, warning)
			}
		}
		if a := s.do("PATCH", path+"/r", `{"rules":[{"verbs":["get"],"resources":["handler"]}]}`, "Content-Type",
			mergePatchType).is(http.StatusOK); !strings.Contains(
			a.header.Get("Warning"), "handlers") {
			t.Errorf("%s: a PATCH warns of %s", kind, a.header.Get("Warning"))
		}
	}
}

// TestEveryKind creates, changes and deletes an object of every kind.
func TestEveryKind(t *testing.T) {
	s := newServer(t, nil)
	for _, k := range simple {
		path := defaultPath + k.kind
		s.do("GET", path+"/x", "").refuses(404, codeNotFound, "not found")
		s.do("POST", path, k.body).is(201)
		s.do("POST", path, k.body).refuses(409, codeExists, "resource already exists")
		s.do("POST", path, `{"metadata":{"name":"y","namespace":"other"}}`).is(400)
		s.do("POST", path, `{"metadata":{"name":"not a name"}}`).is(400)
		s.do("PUT", path+"/y", k.body).is(400)
		tag := s.do("GET", path+"/x", "").is(200).header.Get("Etag")
		if got := s.do("GET", path, "").names(); !strings.Contains(got, "default/x") {
			t.Errorf("%s has %s", k.kind, got)
		}
		if got := s.do("GET", "/api/core/v2/"+k.kind, "").names(); !strings.Contains(got, "default/x") {
			t.Errorf("all %s are %s", k.kind, got)
		}
		patched := s.do("PATCH", path+"/x", k.patch, "Content-Type", mergePatchType).is(200)
		if now := patched.header.Get("Etag"); now == tag || now != s.do("GET", path+"/x", "").header.Get("Etag") {
			t.Errorf("%s: the tag was %s and is %s", k.kind, tag, now)
		}
		var seen struct{ Metadata resource.ObjectMeta }
		patched.has(&seen)
		if seen.Metadata.CreatedBy != admin {
			t.Errorf("%s: created by %q", k.kind, seen.Metadata.CreatedBy)
		}
		if k.kind == "roles" || k.kind == "checks" || k.kind == "handlers" {
			if got := s.do("GET", path+"?labelSelector=a==b", "").names(); got != "" {
				t.Errorf("%s with a label: %s", k.kind, got)
			}
		}
		s.do("DELETE", path+"/x", "").is(204)
		s.do("DELETE", path+"/x", "").refuses(404, codeNotFound, "not found")
	}
}

// TestNothingIsOverwrittenUnseen checks If-Match and If-None-Match where Sensu ignores them.
func TestNothingIsOverwrittenUnseen(t *testing.T) {
	s := newServer(t, nil)
	kinds := append(simple[:len(simple):len(simple)],
		struct{ kind, body, patch string }{"entities",
			`{"metadata":{"name":"x","namespace":"default"},"entity_class":"proxy"}`, `{"user":"u"}`})
	for _, k := range kinds {
		path := defaultPath + k.kind + "/x"
		s.do("PUT", path, k.body, "If-Match", "*").refuses(412, codePrecondition, errPrecondition.message)
		s.do("GET", path, "").is(404)
		if got := s.do("PUT", path, k.body, "If-None-Match", "*"); got.status >= 300 {
			t.Errorf("%s: first PUT: %d %s", k.kind, got.status, got.body)
		}
		s.do("PUT", path, k.body, "If-None-Match", "*").is(412)
		tag := s.do("GET", path, "").header.Get("Etag")
		s.do("PATCH", path, k.patch, "Content-Type", mergePatchType, "If-Match", tag).is(200)
		changed := s.do("GET", path, "")
		s.do("PUT", path, k.body, "If-Match", tag).is(412)
		s.do("DELETE", path, "", "If-Match", tag).is(412)
		now := s.do("GET", path, "").header.Get("Etag")
		if now != changed.header.Get("Etag") {
			t.Errorf("%s: a refused write changed it", k.kind)
		}
		if got := s.do("PUT", path, k.body, "If-Match", now); got.status >= 300 {
			t.Errorf("%s: PUT of what is expected: %d %s", k.kind, got.status, got.body)
		}
		s.do("DELETE", path, "", "If-Match", s.do("GET", path, "").header.Get("Etag")).is(204)
	}
}

func TestExpressionsAreParsed(t *testing.T) {
	s := newServer(t, nil)
	refused := func(kind, body, prefix string) {
		t.Helper()
		got := s.do("POST", defaultPath+kind, body).is(400)
		if !strings.Contains(got.body, `"resource is invalid: `+prefix) {
			t.Errorf("%s: %s", kind, got.body)
		}
	}
	refused("filters", `{"metadata":{"name":"x"},"action":"allow","expressions":["true","event.check.status =="]}`,
		"syntax error in expression 1: ")
	refused("assets", `{"metadata":{"name":"x"},"url":"http://a","sha512":"`+strings.Repeat("0",
		128)+`","filters":["("]}`, "syntax error in expression 0: ")
	refused("assets", `{"metadata":{"name":"x"},"builds":[{"url":"http://a","sha512":"`+strings.Repeat("0",
		128)+`","filters":["("]}]}`, "syntax error in expression 0: ")
	refused("checks", `{"metadata":{"name":"x"},"interval":1,"proxy_requests":{"entity_attributes":["entity.entity_class ==="]}}`, "syntax error in expression 0: ")
	s.do("POST", defaultPath+"filters", `{"metadata":{"name":"x"},"action":"allow","expressions":["(function () { return [1, 2].map(function (n) { return n })[0] })() == 1 && /a+/.test(event.entity.name)"]}`).is(201)
}

func TestNullDeletes(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", defaultPath+"mutators", `{"metadata":{"name":"x","labels":{"a":"1","b":"2"}},"command":"c","timeout":5,"env_vars":["A=b"]}`).is(201)
	var m resource.Mutator
	s.do("PATCH", defaultPath+"mutators/x", `{"metadata":{"labels":{"a":null}},"timeout":null,"env_vars":null}`,
		"Content-Type", mergePatchType).is(200).has(&m)
	if len(m.Metadata.Labels) != 1 || m.Metadata.Labels["b"] != "2" || m.Timeout != 0 || m.EnvVars != nil {
		t.Errorf("patched to %+v", m)
	}
}

func TestClusterRoles(t *testing.T) {
	s := newServer(t, nil)
	const roles, bindings = "/api/core/v2/clusterroles", "/api/core/v2/clusterrolebindings"
	role := `{"metadata":{"name":"x"},"rules":[{"verbs":["get,list"],"resources":["checks"]}]}`
	s.do("POST", roles, role).is(201)
	s.do("PUT", roles+"/x", role).is(201)
	s.do("POST", roles, `{"metadata":{"name":"y","namespace":"default"},"rules":[{"verbs":["get"],"resources":["checks"]}]}`).refuses(400, codeInvalid, "resource is invalid: ClusterRole cannot have a namespace")
	s.do("POST", roles, `{"metadata":{"name":"y"},"rules":[{"verbs":["get"],"resources":["checks"],"label_selector":"a =="}]}`).is(400)
	binding := func(typ string) string {
		return `{"metadata":{"name":"x"},"role_ref":{"type":"` + typ + `","name":"x"},"subjects":[{"type":"group","name":"readers"}]}`
	}
	s.do("POST", bindings, binding("Role")).refuses(400, codeInvalid,
		"resource is invalid: a ClusterRoleBinding can only bind a ClusterRole")
	reader := s.user("reader", "readers")
	s.do("GET", checksPath, "", "Authorization", "Bearer "+reader).is(403)
	s.do("POST", bindings, binding("ClusterRole")).is(201)
	s.do("GET", checksPath, "", "Authorization", "Bearer "+reader).is(200)
	s.do("DELETE", roles+"/x", "").is(204)
	s.do("GET", checksPath, "", "Authorization", "Bearer "+reader).is(403) // a binding without a role grants nothing
}

// TestNamespacesAreEmptyToBeDeleted has an object of each kind in a namespace.
func TestNamespacesAreEmptyToBeDeleted(t *testing.T) {
	s := newServer(t, nil)
	const namespace = "/api/core/v2/namespaces/dev"
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	for _, k := range simple {
		s.do("POST", namespace+"/"+k.kind, k.body).is(201)
		switch k.kind {
		case "roles", "rolebindings", "pipelines", "fallbackPipeline": // deleted with the namespace
		default:
			s.do("DELETE", namespace, "").refuses(400, codeInvalid, "resource is invalid: namespace is not empty")
			s.do("DELETE", namespace+"/"+k.kind+"/x", "").is(204)
		}
	}
	s.do("POST", namespace+"/silenced", `{"check":"a","expire":60}`).is(201)
	s.do("DELETE", namespace, "").is(400)
	s.now.Add(61) // expired silences do not count
	s.do("DELETE", namespace, "").is(204)
	sn := s.store.Snapshot()
	left := slices.ContainsFunc(resource.Kinds, func(k *resource.Kind) bool {
		for range config.ListAny(sn, k, "dev") {
			return true
		}
		return false
	})
	if left {
		t.Error("something is left of a namespace that was deleted")
	}
}

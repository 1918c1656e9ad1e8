package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const entitiesPath = "/api/core/v2/namespaces/default/entities"

func entityBody(name, class, more string) string {
	return `{"metadata":{"name":"` + name + `","namespace":"default"},"entity_class":"` + class + `"` + more + `}`
}

func TestEntitySecrets(t *testing.T) {
	s := newServer(t, nil)
	const secret = "hunter2"
	stored := func(want string) {
		t.Helper()
		if c, _ := config.Get(s.store.Snapshot(), config.Entities, "default", "db"); c.Metadata.Labels["password"] != want {
			t.Errorf("the stored password is %q, want %q", c.Metadata.Labels["password"], want)
		}
	}
	body := `{"metadata":{"name":"db","namespace":"default","labels":{"password":"hunter2","role":"db"}},"entity_class":"proxy"}`
	answers := map[string]*answer{
		"POST":  s.do("POST", entitiesPath, body),
		"PUT":   s.do("PUT", entitiesPath+"/db", body),
		"PATCH": s.do("PATCH", entitiesPath+"/db", `{"deregister":true}`, "Content-Type", mergePatchType),
		"GET":   s.do("GET", entitiesPath+"/db", ""),
		"list":  s.do("GET", entitiesPath, ""),
	}
	for name, got := range answers {
		if got.is(200); strings.Contains(got.body, secret) || !strings.Contains(got.body, `"password":"REDACTED","role":"db"`) {
			t.Errorf("%s shows %s", name, got.body)
		}
	}
	stored(secret)
	// A client that sends back the shown form keeps the secret, and can still change it.
	s.do("PUT", entitiesPath+"/db", answers["GET"].body).is(200)
	stored(secret)
	s.do("PATCH", entitiesPath+"/db", `{"metadata":{"labels":{"password":"REDACTED","role":"x"}}}`, "Content-Type", mergePatchType).is(200)
	stored(secret)
	s.do("PATCH", entitiesPath+"/db", `{"metadata":{"labels":{"password":"new"}}}`, "Content-Type", mergePatchType).is(200)
	stored("new")
}

func TestEntityWrites(t *testing.T) {
	s := newServer(t, nil)
	agent := entityBody("web1", "agent", `,"subscriptions":["linux"],"system":{"hostname":"h1"},"last_seen":5,"sensu_agent_version":"6.12.0"`)
	s.do("POST", entitiesPath, agent).is(200)
	s.do("POST", entitiesPath, agent).refuses(409, codeExists, "resource already exists")
	for _, tc := range []struct {
		method, path, body string
		status, code       int
		message            string
	}{
		{"POST", "", entityBody("", "proxy", ""), 400, codeInvalid, "entity name must not be empty"},
		{"POST", "", `{"metadata":{"name":"x"},"entity_class":"proxy"}`, 400, codeInvalid, "namespace must be set"},
		{"POST", "", `{"metadata":{"name":"x","namespace":"dev"},"entity_class":"proxy"}`, 400, codeInvalid,
			"the namespace of the resource (dev) does not match the namespace of the URI (default)"},
		{"PUT", "/y", entityBody("x", "proxy", ""), 400, codeInvalid,
			"the name of the resource (x) does not match the name of the URI (y)"},
		{"POST", "", "{", 400, codeInvalid, "unexpected EOF"},
		{"PATCH", "/web1", `{"entity_class":""}`, 400, codeInvalid, "entity class must not be empty"},
		{"PATCH", "/web1", `{"metadata":{"name":"x"}}`, 400, codeInvalid,
			"the name of the resource (x) does not match the name in the URI (web1)"},
		{"PATCH", "/nobody", `{}`, 404, codeNotFound, "not found"},
		{"DELETE", "/nobody", "", 404, codeNotFound, "not found"},
		{"GET", "/nobody", "", 404, codeNotFound, "not found"},
	} {
		s.do(tc.method, entitiesPath+tc.path, tc.body, "Content-Type",
			map[string]string{"PATCH": mergePatchType}[tc.method]).refuses(tc.status, tc.code, tc.message)
	}

	var e resource.Entity
	get := func(name string) resource.Entity {
		t.Helper()
		e = resource.Entity{}
		s.do("GET", entitiesPath+"/"+name, "").is(200).has(&e)
		return e
	}
	// The agent's report stays, and the answer has what was stored.
	s.do("PUT", entitiesPath+"/web1", entityBody("web1", "agent", `,"system":{"hostname":"no"},"last_seen":9`)).is(200).has(&e)
	if e.System.Hostname != "h1" || e.LastSeen != 5 || strings.Join(e.Subscriptions, " ") != "entity:web1" {
		t.Errorf("answered %+v", e)
	}
	if get("web1"); e.System.Hostname != "h1" || e.SensuAgentVersion != "6.12.0" {
		t.Errorf("stored %+v", e)
	}
	// A proxy entity has no agent: all of it is replaced.
	s.do("PUT", entitiesPath+"/router", entityBody("router", "proxy", `,"system":{"os":"ios"}`)).is(200)
	if get("router"); e.System.OS != "ios" {
		t.Errorf("stored %+v", e)
	}
	s.do("PUT", entitiesPath+"/router", entityBody("router", "proxy", `,"system":{"os":"junos"},"subscriptions":["a"]`)).is(200)
	if get("router"); e.System.OS != "junos" || strings.Join(e.Subscriptions, " ") != "a entity:router" {
		t.Errorf("stored %+v", e)
	}
	s.do("PUT", entitiesPath+"/router", entityBody("router", "proxy", "")).is(200)
	if get("router"); e.System.OS != "" {
		t.Errorf("stored %+v", e)
	}
}

func TestAgentManagedEntities(t *testing.T) {
	s := newServer(t, nil)
	const managed = `{"metadata":{"name":"m","namespace":"default","labels":{"sensu.io/managed_by":"sensu-agent"}},"entity_class":"agent"}`
	refused := func(body string) {
		t.Helper()
		s.do("PUT", entitiesPath+"/m", body).refuses(409, codeExists, "entity is managed by its agent")
	}
	refused(managed) // not there yet, and labelled as managed
	s.do("POST", entitiesPath, managed).is(200)
	refused(managed)
	refused(entityBody("m", "agent", ""))
	s.do("PUT", entitiesPath+"/m", entityBody("m", "proxy", "")).is(200)
	s.do("PUT", entitiesPath+"/m", entityBody("m", "agent", "")).is(200)
}

func TestEntityPatchTakesBothTags(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", entitiesPath, entityBody("a", "proxy", `,"system":{"os":"ios"}`)).is(200)
	patch := func(tag string, status int) string {
		t.Helper()
		return s.do("PATCH", entitiesPath+"/a", `{"deregister":true}`, "Content-Type", mergePatchType, "If-Match",
			tag).is(status).header.Get("Etag")
	}
	old := s.do("GET", entitiesPath+"/a", "").header.Get("Etag")
	half := patch(old, 200)
	if old == half {
		t.Error("two representations with one tag")
	}
	patch(old, 412)
	patch(half, 200)
	patch(s.do("GET", entitiesPath+"/a", "").header.Get("Etag"), 200)
}

func TestDeletingAnEntityDeletesItsEvents(t *testing.T) {
	s := newServer(t, nil)
	for _, path := range []string{"/web1/cpu", "/web1/disk", "/web2/cpu"} {
		s.do("PUT", eventsPath+path, `{"check":{"status":1}}`).is(201)
	}
	// Nothing changes while the log refuses writes.
	s.intake.fail(errors.New("disk is full"))
	s.do("DELETE", entitiesPath+"/web1", "").refuses(503, codeInternal, "disk is full")
	s.do("GET", entitiesPath+"/web1", "").is(200)
	s.do("POST", entitiesPath, entityBody("new", "proxy", `,"system":{"os":"ios"}`)).refuses(503, codeInternal, "disk is full")
	s.do("GET", entitiesPath+"/new", "").is(404)
	s.intake.fail(nil)

	s.do("DELETE", entitiesPath+"/web1", "").is(204)
	if got := s.do("GET", eventsPath, "").names(); got != "default/web2/cpu" {
		t.Errorf("events %s are left", got)
	}
	s.do("DELETE", entitiesPath+"/web1", "").is(404)

	// Events without an entity can be deleted in the same way.
	if err := config.Delete(t.Context(), s.store, config.Entities, "default", "web2"); err != nil {
		t.Fatal(err)
	}
	s.do("DELETE", entitiesPath+"/web2", "").is(204)
	if got := s.do("GET", eventsPath, "").names(); got != "" {
		t.Errorf("events %s are left", got)
	}
}

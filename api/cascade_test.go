package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

const orphansPath = "/api/lapwing/v1/namespaces/default/orphans"

// published puts the result of a check that is scheduled.
func (s *server) published(entity, check string, status int) {
	s.t.Helper()
	s.do(http.MethodPost, eventsPath, fmt.Sprintf(
		`{"entity":{"metadata":{"name":"%s"}},"check":{"metadata":{"name":"%s"},"interval":10,"publish":true,"status":%d,"handlers":["mail"]}}`, entity, check, status)).is(201)
}

// count returns how many entities a list of events, silences or orphans has.
func (s *server) count(path string) int {
	s.t.Helper()
	a := s.do(http.MethodGet, path, "")
	a.is(200)
	return strings.Count(a.body, `"entity_class"`) + strings.Count(a.body, `"missing"`) + strings.Count(a.body, `"expire_on_resolve"`)
}

func TestDeleteEntityCascade(t *testing.T) {
	for query, want := range map[string]struct{ events, silences int }{
		"":                                {0, 2},
		"?events=delete":                  {0, 2},
		"?events=keep":                    {2, 2},
		"?silences=delete":                {0, 1},
		"?events=resolve":                 {0, 2},
		"?silences=keep":                  {0, 2},
		"?events=resolve&silences=delete": {0, 1},
	} {
		t.Run(query, func(t *testing.T) {
			s := newServer(t, nil)
			s.published("web1", "disk", 2)
			s.published("web1", "cpu", 0)
			s.do("POST", silencedPath, `{"metadata":{"namespace":"default"},"subscription":"entity:web1","check":"disk"}`).is(201)
			s.do("POST", silencedPath, `{"metadata":{"namespace":"default"},"subscription":"linux"}`).is(201)
			s.do("DELETE", entitiesPath+"/web1"+query, "").is(204)
			if n := s.count(eventsPath); n != want.events {
				t.Errorf("%d events are left, want %d", n, want.events)
			}
			if n := s.count(silencedPath); n != want.silences {
				t.Errorf("%d silences are left, want %d", n, want.silences)
			}
			resolved := strings.Contains(s.do("GET", "/api/lapwing/v1/namespaces/default/events/web1/disk/history",
				"").body, `"Resolving because the entity was deleted"`)
			if resolved != strings.Contains(query, "resolve") {
				t.Errorf("resolved: %v", resolved)
			}
		})
	}
	s := newServer(t, nil)
	s.published("web1", "disk", 2)
	s.do("DELETE", entitiesPath+"/web1?events=some", "").is(400)
	s.do("DELETE", entitiesPath+"/web1?silences=some", "").is(400)
	if s.count(eventsPath) != 1 {
		t.Error("a request that was refused deleted events")
	}
}

func TestDeleteCheckCascade(t *testing.T) {
	s := newServer(t, nil)
	begin := func() {
		s.do("PUT", checksPath+"/disk", checkBody("disk", "")).is(201)
		for i := range 5 {
			s.published(fmt.Sprintf("web%d", i), "disk", i%3)
			s.published(fmt.Sprintf("web%d", i), "disk2", 0)
		}
		s.do("PUT", silencedPath+"/linux:disk", `{"metadata":{"namespace":"default","name":"linux:disk"},"subscription":"linux","check":"disk"}`).is(201)
	}
	begin()
	s.do("DELETE", checksPath+"/disk", "").is(204)
	if n := s.count(eventsPath); n != 10 {
		t.Errorf("%d events, want all", n)
	}
	begin()
	s.do("DELETE", checksPath+"/disk?events=resolve&silences=delete", "").is(204)
	if n, silences := s.count(eventsPath), s.count(silencedPath); n != 5 || silences != 0 {
		t.Errorf("%d events, want those of the other check; %d silences", n, silences)
	}
	s.do("DELETE", checksPath+"/disk?events=delete", "").is(404)
}

// TestCascadeNeedsRights: a user may delete checks, but not events.
func TestCascadeNeedsRights(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("disk", "")).is(201)
	s.published("web1", "disk", 2)
	s.grant("limited", "default", resource.Rule{Verbs: []string{"*"}, Resources: []string{"checks", "entities"}})
	limited := []string{"Authorization", "Bearer " + s.user("limited", "limited")}
	for _, path := range []string{checksPath + "/disk?events=delete", checksPath + "/disk?silences=delete",
		entitiesPath + "/web1?events=resolve", orphansPath} {
		s.do("DELETE", path, "", limited...).is(403)
	}
	s.do("DELETE", checksPath+"/disk", "", limited...).is(204)
	if s.count(eventsPath) != 1 {
		t.Error("the event is gone")
	}
}

func TestDeleteNamespaceCascade(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"old"}`).is(201)
	there := func(path string) string { return strings.ReplaceAll(path, "/default/", "/old/") }
	old := func(body string) string { return strings.ReplaceAll(body, `"default"`, `"old"`) }
	s.do("POST", there(checksPath), old(checkBody("disk", ""))).is(201)
	s.do("POST", there(silencedPath), `{"metadata":{"namespace":"old"},"subscription":"linux"}`).is(201)
	s.do("POST", there(eventsPath), `{"entity":{"metadata":{"name":"web1"}},"check":{"metadata":{"name":"disk"},"interval":10}}`).is(201)
	s.do("DELETE", "/api/core/v2/namespaces/old", "").is(400)
	s.do("DELETE", "/api/core/v2/namespaces/old?cascade=yes", "").is(400)
	s.do("DELETE", "/api/core/v2/namespaces/old?cascade=true", "").is(204)
	if n := s.count(there(eventsPath)); n != 0 {
		t.Errorf("%d events are left", n)
	}
	if _, ok := config.Get(s.store.Snapshot(), config.Entities, "old", "web1"); ok {
		t.Error("the entity is left")
	}
}

// TestCascadeWithConnectedAgents: a connected agent would register its entity again, so nothing is deleted.
func TestCascadeWithConnectedAgents(t *testing.T) {
	agents := &someAgents{agents: map[string][]string{}}
	s := newServer(t, func(o *Options) { o.Agents = agents })
	s.do("POST", "/api/core/v2/namespaces", `{"name":"old"}`).is(201)
	path := "/api/core/v2/namespaces/old"
	for i := range 7 {
		name := fmt.Sprint("web", i)
		s.do("POST", path+"/entities", fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"old"},"entity_class":"agent"}`, name)).is(200)
		agents.agents["linux"] = append(agents.agents["linux"], name)
	}
	const end = " are connected and would register their entities again: stop them first; nothing was deleted"
	s.do("DELETE", path+"?cascade=true", "").refuses(400, codeInvalid,
		"resource is invalid: the agents web0, web1, web2, web3, web4 and 2 more"+end)
	if n := s.count(path + "/entities"); n != 7 {
		t.Errorf("%d entities are left, want 7", n)
	}
	agents.agents["linux"] = []string{"web3"}
	s.do("DELETE", path+"?cascade=true", "").refuses(400, codeInvalid,
		"resource is invalid: the agent web3 is connected and would register its entity again: stop it first; nothing was deleted")
	agents.agents["linux"] = nil
	s.do("DELETE", path+"?cascade=true", "").is(204)
}

func TestOrphans(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", checksPath, checkBody("disk", "")).is(201)
	s.published("web1", "disk", 0)
	s.published("web1", "gone", 2)
	s.published("web2", "disk", 1)
	s.do("POST", eventsPath, `{"entity":{"metadata":{"name":"web1"}},"check":{"metadata":{"name":"by-hand"},"interval":10}}`).is(201)
	s.do("DELETE", entitiesPath+"/web2?events=keep", "").is(204)
	if n := s.count(orphansPath); n != 0 {
		t.Errorf("%d orphans, although all are new", n)
	}
	got := s.do("GET", orphansPath+"?older_than=0", "")
	if n := strings.Count(got.body, `"missing"`); n != 2 ||
		!strings.Contains(got.body, `"check":"gone","missing":"check"`) ||
		!strings.Contains(got.body, `"entity":"web2","check":"disk","missing":"entity"`) {
		t.Errorf("orphans: %s", got.body)
	}
	if n := s.count(strings.Replace(orphansPath, "default", "-", 1) + "?older_than=0"); n != 2 {
		t.Errorf("%d orphans in all namespaces", n)
	}
	for _, bad := range []string{"?older_than=-1", "?older_than=x", "?missing=x"} {
		s.do("GET", orphansPath+bad, "").is(400)
	}
	s.do("DELETE", orphansPath+"?events=keep", "").is(400)
	if got := s.do("DELETE", orphansPath+"?older_than=0&missing=entity", ""); got.status != 200 ||
		!strings.Contains(got.body, `"removed":1`) {
		t.Errorf("removed: %s", got.body)
	}
	if got := s.do("DELETE", orphansPath+"?older_than=0&events=resolve", ""); !strings.Contains(got.body, `"removed":1`) {
		t.Errorf("removed: %s", got.body)
	}
	if n := s.count(eventsPath); n != 2 {
		t.Errorf("%d events are left, want 2", n)
	}
}

package api

import (
	"strings"
	"testing"

	"github.com/lapwing-monitoring/lapwing/config"
)

func TestEntityConfigs(t *testing.T) {
	s := newServer(t, nil)
	const all, path = "/api/core/v3/entity-configs", "/api/core/v3/namespaces/default/entity-configs"
	doc := func(name, more string) string {
		return `{"type":"EntityConfig","api_version":"core/v3","metadata":{"name":"` + name +
			`","labels":{"region":"eu","password":"hunter2"}},"spec":{"entity_class":"proxy"` + more + `}}`
	}
	s.do("POST", path, doc("x", `,"subscriptions":["linux"]`)).is(201)
	s.do("POST", path, doc("x", "")).refuses(409, codeExists, "resource already exists")
	want := `{"type":"EntityConfig","api_version":"core/v3","metadata":{"name":"x","namespace":"default","labels":{"password":"REDACTED","region":"eu"}},` +
		`"spec":{"entity_class":"proxy","subscriptions":["linux","entity:x"],"deregister":false,"deregistration":{}}}`
	got := s.do("GET", path+"/x", "").is(200)
	if got.body != want {
		t.Errorf("got %s\nwant %s", got.body, want)
	}
	if list := s.do("GET", path, "").body; list != "["+want+"]" {
		t.Errorf("listed as %s", list)
	}
	for query, found := range map[string]bool{
		"?labelSelector=region==eu": true, "?labelSelector=region==us": false,
		"?fieldSelector=linux+in+entity.subscriptions": true, "?fieldSelector=entity.entity_class==agent": false,
	} {
		if list := s.do("GET", all+query, "").is(200).body; (list != "[]") != found {
			t.Errorf("%s: %s", query, list)
		}
	}

	// A value that was redacted when read keeps its value when written back.
	s.do("PUT", path+"/x", got.body).is(201)
	s.do("PATCH", path+"/x", `{"metadata":{"labels":{"region":null}},"spec":{"user":"u"}}`, "Content-Type",
		mergePatchType, "If-Match", got.header.Get("Etag")).is(200)
	s.do("PATCH", path+"/x", `{"spec":{"user":"v"}}`, "Content-Type", mergePatchType, "If-Match", got.header.Get("Etag")).is(412)
	s.do("PATCH", path+"/x", `{"metadata":{"name":"y"}}`, "Content-Type", mergePatchType).is(400)
	cfg, ok := config.Get(s.store.Snapshot(), config.Entities, "default", "x")
	if !ok || cfg.User != "u" || len(cfg.Metadata.Labels) != 1 || cfg.Metadata.Labels["password"] != "hunter2" {
		t.Errorf("stored as %+v", cfg)
	}
	if whole := s.do("GET", defaultPath+"entities/x", "").is(200).body; !strings.Contains(whole, `"user":"u"`) {
		t.Errorf("the entity is %s", whole)
	}

	for _, body := range []string{
		`{}`, `null`, `[]`, ``, `{"metadata":{"name":"y"}}`, `{"metadata":{"name":"y"},"spec":null}`,
		`{"type":"Entity","metadata":{"name":"y"},"spec":{"entity_class":"proxy"}}`,
		`{"metadata":{"name":"y","namespace":"other"},"spec":{"entity_class":"proxy"}}`,
		`{"metadata":{"name":"y"},"spec":{}}`,
		`{"metadata":{"name":"y"},"spec":{"entity_class":1}}`,
	} {
		s.do("POST", path, body).is(400)
	}
	s.do("PUT", path+"/y", doc("x", "")).is(400)
	// the outer one wins
	s.do("PUT", path+"/y", `{"metadata":{"name":"y"},"spec":{"metadata":{"name":"z"},"entity_class":"proxy"}}`).is(201)
	s.do("DELETE", path+"/x", "").is(204)
	s.do("GET", path+"/x", "").is(404)
	s.do("GET", defaultPath+"entities/x", "").is(404)
}

package api

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/fleet"
	"github.com/lapwing-monitoring/lapwing/internal/testbroker"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

const (
	entityViewPath = "/api/lapwing/v1/namespaces/default/entities/view"
	entityMapPath  = "/api/lapwing/v1/namespaces/default/entities/map"
)

// text says in a few characters what the counts have: by agent, then by worst class.
func (c *entityCounts) text() string {
	text := fmt.Sprintf("%d=%d/%d/%d/%d", c.Total, c.Connected, c.Late, c.Gone, c.Proxy)
	if w := c.Worst; w != nil {
		text += fmt.Sprintf("=%d/%d/%d/%d/%d/%d", w.Critical, w.Warning, w.Unknown, w.Silenced, w.OK, w.None)
	}
	return text
}

// String says in a line what a window has.
func (w *entityWindow) String() string {
	parts := []string{w.Counts.text()}
	if w.Order != nil {
		parts = append(parts, strings.Join(w.Order, ","))
	}
	for _, r := range w.Rows {
		parts = append(parts, r.Name+"="+r.Worst+r.Agent)
	}
	for _, g := range w.Group {
		parts = append(parts, g.Value+":"+g.Counts.text())
	}
	for _, f := range w.Facets {
		parts = append(parts, fmt.Sprint(f.Key, "(", f.Total, ")"))
		for _, v := range f.Values {
			parts = append(parts, fmt.Sprint(v.Value, ":", v.Counts.Total))
		}
	}
	if w.Place != nil {
		parts = append(parts, fmt.Sprint("at ", *w.Place))
	}
	return strings.Join(parts, " ")
}

// threeEntities are two hosts with agents and a proxy without events.
func (s *server) threeEntities() {
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	for name, more := range map[string]string{
		"web1": `,"subscriptions":["linux"],"system":{"os":"linux","platform":"debian"},"sensu_agent_version":"6.9.0"`,
		"web2": `,"subscriptions":["linux","db"],"system":{"os":"linux"},"sensu_agent_version":"6.12.0"`,
	} {
		s.do("PUT", entitiesPath+"/"+name, entityBody(name, "agent", more)).is(200)
		s.event("default", name, "keepalive", 0)
	}
	s.do("PUT", entitiesPath+"/router", entityBody("router", "proxy", "")).is(200)
	s.event("default", "web1", "cpu", 1)
	s.event("default", "web2", "cpu", 2)
	s.event("default", "web2", "disk", 0)
	s.event("dev", "box", "x", 1)
}

func TestEntityView(t *testing.T) {
	s := newServer(t, nil)
	s.threeEntities()
	const counts = "3=2/0/0/1=1/1/0/0/0/1"
	for query, want := range map[string]string{
		"":                           counts + " default/web2,default/web1,default/router web2=criticalconnected web1=warningconnected router=none",
		"?sort=-name&limit=1":        counts + " default/web2 web2=criticalconnected",
		"?sort=version&offset=2":     counts + " default/web2 web2=criticalconnected",
		"?offset=9":                  counts + " ",
		"?limit=0&find=default/web1": counts + "  at 1",
		"?limit=0&find=default/no":   counts + "  at -1",
		"?fieldSelector=entity.system.os%20==%20linux&limit=0":  "2=2/0/0/0=1/1/0/0/0/0 ",
		"?fieldSelector=entity.name%20matches%20rout&sort=name": "1=0/0/0/1=0/0/0/0/0/1 default/router router=none",
		"?groupBy=os":                        counts + " linux:2=2/0/0/0=1/1/0/0/0/0 :1=0/0/0/1=0/0/0/0/0/1",
		"?groupBy=subscription&offset=1":     counts + " db:1=1/0/0/0=1/0/0/0/0/0 :1=0/0/0/1=0/0/0/0/0/1",
		"?agent=proxy&sort=name":             "1=0/0/0/1=0/0/0/0/0/1 default/router router=none",
		"?agent=connected&worst=critical":    "1=1/0/0/0=1/0/0/0/0/0 default/web2 web2=criticalconnected",
		"?backend=other&limit=0":             "0=0/0/0/0=0/0/0/0/0/0 ",
		"?limit=0&facets=version,label:rack": counts + "  version(3) :1 6.12.0:1 6.9.0:1 label:rack(1) :3",
	} {
		var w entityWindow
		s.do("GET", entityViewPath+query, "").is(200).has(&w)
		if got := w.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
	var all entityWindow
	s.do("GET", "/api/lapwing/v1/namespaces/-/entities/view?groupBy=namespace", "").is(200).has(&all)
	if got, want := all.String(), "4=2/0/0/2=1/2/0/0/0/1 default:3=2/0/0/1=1/1/0/0/0/1 dev:1=0/0/0/1=0/1/0/0/0/0"; got != want {
		t.Errorf("all namespaces: %s, want %s", got, want)
	}
	for query, message := range map[string]string{
		"?sort=severity":                         `sort: "severity" is no order: it must be state, name, last_seen, version, or one of them with a - before it`,
		"?groupBy=rack":                          `groupBy: "rack" is no group: it must be namespace, class, os, platform, version, subscription,`,
		"?facets=os,,":                           `facets: a key is empty`,
		"?facets=rack":                           `facets: "rack" is no group`,
		"?limit=501":                             `limit must be a number from 0 to 500, not "501"`,
		"?agent=asleep":                          `agent: "asleep" is none of proxy, connected, late, gone`,
		"?worst=bad":                             `worst: "bad" is none of critical, warning, unknown, silenced, ok, none`,
		"?find=web1":                             `find must be namespace/name, not "web1"`,
		"?facets=os" + strings.Repeat(",os", 10): `facets may have 10 keys at most`,
	} {
		a := s.do("GET", entityViewPath+query, "").is(400)
		if !strings.Contains(a.body, strings.ReplaceAll(message, `"`, `\"`)) {
			t.Errorf("%s: %s, want %s", query, a.body, message)
		}
	}
}

func TestEntityRow(t *testing.T) {
	s := newServer(t, nil)
	s.do("PUT", entitiesPath+"/db", `{"metadata":{"name":"db","namespace":"default","labels":{"password":"hunter2","role":"`+strings.Repeat("r", 300)+`"}},
		"entity_class":"agent","subscriptions":["linux"],"last_seen":5,"system":{"os":"linux","platform":"debian"},"sensu_agent_version":"6.12.0"}`).is(200)
	s.event("default", "db", "cpu", 2)
	s.event("default", "db", "disk", 0)
	var w entityWindow
	s.do("GET", entityViewPath, "").is(200).has(&w)
	if len(w.Rows) != 1 {
		t.Fatalf("%d rows", len(w.Rows))
	}
	got, _ := json.Marshal(w.Rows[0])
	want := `{"namespace":"default","name":"db","class":"agent","os":"linux","platform":"debian","version":"6.12.0",` +
		`"subscriptions":["linux","entity:db"],"labels":{"password":"REDACTED","role":"` + strings.Repeat("r", 200) + `…"},"last_seen":5,` +
		`"agent":"gone","worst":"critical","events":{"critical":1,"warning":0,"unknown":0,"silenced":0,"ok":1,"total":2}}`
	if string(got) != want {
		t.Errorf("row:\n got %s\nwant %s", got, want)
	}
}

// TestEntityViewRights: events are counted only for users who may list all events, and a role that is limited by labels has
// a list of its own.
func TestEntityViewRights(t *testing.T) {
	s := newServer(t, nil)
	s.threeEntities()
	s.do("PATCH", entitiesPath+"/web1", `{"metadata":{"labels":{"region":"eu"}}}`, "Content-Type", mergePatchType).is(200)
	list := func(what, labels string) resource.Rule {
		return resource.Rule{Verbs: []string{"list"}, Resources: []string{what}, LabelSelector: labels}
	}
	s.grant("blind", "default", list("entities", ""))
	s.grant("eu", "default", list("entities", "region == eu"), list("events", "region == eu"))
	s.grant("both", "default", list("entities", ""), list("events", ""))
	s.grant("none", "default", list("events", ""))
	for group, want := range map[string]string{
		"blind": "3=2/0/0/1 default/router,default/web1,default/web2 router= web1=connected web2=connected",
		"eu":    "1=1/0/0/0 default/web1 web1=connected",
		"both":  "3=2/0/0/1=1/1/0/0/0/1 default/web2,default/web1,default/router web2=criticalconnected web1=warningconnected router=none",
	} {
		token := s.user("of-"+group, group)
		var w entityWindow
		query := "?sort=state"
		if group == "blind" {
			query = "?sort=name"
		}
		s.do("GET", entityViewPath+query, "", "Authorization", "Bearer "+token).is(200).has(&w)
		if got := w.String(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", group, got, want)
		}
		var m entityMap
		s.do("GET", entityMapPath, "", "Authorization", "Bearer "+token).is(200).has(&m)
		if got := m.Groups[0].Worst; (got == "") != (group != "both") {
			t.Errorf("the map of %s has the classes %q", group, got)
		}
	}
	none := s.user("of-none", "none")
	for _, path := range []string{entityViewPath, entityViewPath + "/stream", entityMapPath} {
		s.do("GET", path, "", "Authorization", "Bearer "+none).is(403)
	}
	// A stream ends when the role changes, also if the user may only list no more events.
	eu, both := s.follow(entityViewPath+"/stream", s.login("of-eu"), ""), s.follow(entityViewPath+"/stream", s.login("of-both"), "")
	for _, l := range []*listener{eu, both} {
		if got := l.next(); !strings.HasPrefix(got, "window ") {
			t.Fatalf("the stream says %s", got)
		}
	}
	s.do(http.MethodDelete, "/api/core/v2/namespaces/default/roles/eu", "").is(204)
	eu.wants("end")
	s.grant("both", "default", list("entities", ""))
	both.wants("end")
}

func TestEntityViewStream(t *testing.T) {
	s := newServer(t, nil)
	s.threeEntities()
	l := s.follow(entityViewPath+"/stream?limit=2&find=default/router&facets=class", s.token, "")
	wants := func(want string) {
		t.Helper()
		name, data, _ := strings.Cut(l.next(), " ")
		var w entityWindow
		if err := json.Unmarshal([]byte(data), &w); name != "window" || err != nil || w.String() != want {
			t.Fatalf("the stream says %s\n     %s\nwant %s", name, w.String(), want)
		}
	}
	wants("3=2/0/0/1=1/1/0/0/0/1 default/web2,default/web1 web2=criticalconnected web1=warningconnected class(2) agent:2 proxy:1 at 2")
	begin := time.Now()
	s.event("default", "router", "ping", 0)
	wants("3=2/0/0/1=1/1/0/0/1/0 class(2) agent:2 proxy:1") // the facet counts classes, too
	s.event("default", "router", "ping", 2)
	wants("3=2/0/0/1=2/1/0/0/0/0 default/web2,default/router router=critical class(2) agent:2 proxy:1 at 1")
	if took := time.Since(begin); took < entityViewEvery {
		t.Errorf("two messages came in %s", took)
	}
}

func TestEntityMap(t *testing.T) {
	s := newServer(t, nil)
	s.threeEntities()
	path := entityMapPath + "?groupBy=os"
	const want = `{"total":3,"groups":[{"value":"","namespace":"default","names":["router"],"worst":"5"},` +
		`{"value":"linux","namespace":"default","names":["web1","web2"],"worst":"10"}]}`
	a := s.do("GET", path, "", "Accept-Encoding", "identity").is(200)
	if a.body != want {
		t.Errorf("the map is %s\nwant %s", a.body, want)
	}
	tag := a.header.Get("Etag")
	s.do("GET", path, "", "If-None-Match", tag).is(304)
	s.event("default", "web1", "keepalive", 0) // no cell changes
	s.do("GET", path, "", "If-None-Match", tag).is(304)

	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Accept-Encoding", "br, gzip;q=0.5")
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Content-Encoding"); got != "gzip" || resp.Header.Get("Etag") == "" {
		t.Fatalf("encoding %q, tag %q", got, resp.Header.Get("Etag"))
	}
	unpacked, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(unpacked); err != nil || string(data) != want {
		t.Errorf("unpacked: %s, %v", data, err)
	}

	s.event("default", "web1", "cpu", 2)
	s.do("DELETE", entitiesPath+"/router", "").is(204)
	testbroker.Eventually(t, func() error {
		a := s.do("GET", path, "", "If-None-Match", tag, "Accept-Encoding", "identity")
		if want := `{"total":2,"groups":[{"value":"linux","namespace":"default","names":["web1","web2"],"worst":"00"}]}`; a.body != want {
			return fmt.Errorf("the map is %d %s, want %s", a.status, a.body, want)
		}
		return nil
	})
}

func TestAcceptsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "br, GZIP": true, "gzip;q=0": false, "gzip; q=0.0": false, "gzip; q=0.8": true, "gzip;q=1": true, "identity": false,
		"xgzip": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}

// defined is definitions that do not change.
type defined struct{ snapshot *config.Snapshot }

func (d *defined) Snapshot() *config.Snapshot                   { return d.snapshot }
func (d *defined) OnChange(func(config.Change)) (cancel func()) { return func() {} }

// BenchmarkEntities times answers about 40,000 entities, and says how large they are.
//
//	go test -run '^$' -bench Entities ./api
func BenchmarkEntities(b *testing.B) {
	d := &defined{config.Empty()}
	for i := range 40_000 {
		d.snapshot = config.With(d.snapshot, config.Entities, &resource.EntityConfig{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%05d.example.com", i),
				Labels: map[string]string{"region": fmt.Sprint("r", i%50), "role": "web"}},
			EntityClass: "agent", Subscriptions: []string{"linux", fmt.Sprint("group-", i%20), fmt.Sprint("team-", i%7)},
		})
	}
	s := newServer(b, func(o *Options) {
		f, err := fleet.New(fleet.Options{Config: d, State: o.State.(*state.State)})
		start(b, f, err)
		o.EntityViews = f
	})
	for name, path := range map[string]string{
		"window": entityViewPath, "groups": entityViewPath + "?groupBy=label:region", "facets": entityViewPath + "?facets=os,version,subscription",
		"map": entityMapPath + "?groupBy=label:region", "map by subscription": entityMapPath + "?groupBy=subscription",
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(name+"/"+encoding, func(b *testing.B) {
				size := 0
				for b.Loop() {
					size = len(s.do("GET", path, "", "Accept-Encoding", encoding).is(200).body)
				}
				b.ReportMetric(float64(size), "bytes")
			})
		}
	}
}

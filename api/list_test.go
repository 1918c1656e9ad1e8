package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// selectors returns a query with label and field selectors.
func selectors(label, field string) string {
	q := url.Values{}
	if label != "" {
		q.Set("labelSelector", label)
	}
	if field != "" {
		q.Set("fieldSelector", field)
	}
	return "?" + q.Encode()
}

func TestSelectorsOfLists(t *testing.T) {
	s := newServer(t, nil)
	s.do("POST", "/api/core/v2/namespaces", `{"name":"dev"}`).is(201)
	for _, c := range []string{
		`{"metadata":{"name":"a","namespace":"default","labels":{"region":"eu"}},"interval":10,"subscriptions":["linux","db"],"publish":true}`,
		`{"metadata":{"name":"b","namespace":"default","labels":{"region":"us"}},"interval":300,"handlers":["slack"]}`,
		`{"metadata":{"name":"c","namespace":"dev"},"interval":60,"subscriptions":["linux"]}`,
	} {
		namespace := "default"
		if strings.Contains(c, `"dev"`) {
			namespace = "dev"
		}
		s.do("POST", "/api/core/v2/namespaces/"+namespace+"/checks", c).is(201)
	}
	s.do("POST", "/api/core/v2/namespaces/default/handlers",
		`{"metadata":{"name":"h","namespace":"default"},"type":"pipe","command":"x","filters":["f"]}`).is(201)
	s.do("PUT", "/api/core/v2/namespaces/default/entities/web",
		`{"metadata":{"name":"web","namespace":"default","labels":{"region":"eu","password":"x"}},"entity_class":"proxy",`+
			`"system":{"os":"linux"}}`).is(200)
	s.do("PUT", eventsPath+"/web/disk", `{"check":{"status":2,"output":"full","subscriptions":["linux"]}}`).is(201)
	s.do("PUT", eventsPath+"/web/cpu", `{"check":{"status":0}}`).is(201)
	s.do("PUT", "/api/core/v2/namespaces/dev/events/db/disk",
		`{"check":{"status":1},"entity":{"metadata":{"name":"db","labels":{"region":"us"}}}}`).is(201)
	s.user("ann", "ops")

	const all = "/api/core/v2/"
	for _, tc := range []struct{ path, label, field, want string }{
		{"checks", "region == eu", "", "default/a"},
		{"checks", "region != eu", "", "default/b dev/c"},
		{"checks", "", "linux in check.subscriptions", "default/a dev/c"},
		{"checks", "", "check.interval > 30 && check.interval < 5m", "dev/c"},
		{"checks", "", "check.handlers == slack || check.publish == true", "default/a default/b"},
		{"checks", "", "check.namespace =~ '^d' && !check.name in [a, b]", "dev/c"},
		{"checks", "region in [eu, us]", "check.labels.region == us", "default/b"},
		{"checks", "", "check.labels.entity == a", ""},
		{"namespaces/default/checks", "", "linux in check.subscriptions", "default/a"},
		{"handlers", "", "handler.type == pipe && f in handler.filters", "default/h"},
		{"entities", "region == eu", "", "default/web"},
		{"entities", "", "entity.entity_class == proxy && entity.system.os == linux", "default/web"},
		{"entities", "", "entity.system.os == windows", ""},
		{"entities", "password == x", "", ""},
		{"entities", "", "entity.labels.password == REDACTED", "default/web"},
		{"events", "", "event.check.status != '0'", "default/web/disk dev/db/disk"},
		{"events", "", "event.check.status > 1", "default/web/disk"},
		{"events", "region == us", "", "dev/db/disk"},
		{"events", "password == x", "", ""},
		{"events", "", "event.check.output matches ull", "default/web/disk"},
		{"events", "", "event.entity.system.os == linux && linux in event.check.subscriptions", "default/web/disk"},
		{"namespaces/default/events", "", "event.check.name == disk", "default/web/disk"},
		{"namespaces/default/events/web", "", "event.check.status == 0", "default/web/cpu"},
		{"namespaces", "", "namespace.name matches e", "default dev sensu-system"},
		{"namespaces", "", "namespace.name == dev", "dev"},
		{"users", "", "ops in user.groups", "ann"},
		{"users", "", "user.disabled == false && user.username != admin", "agent ann"},
		{"clusterroles", "", "clusterrole.name in [view, edit]", "edit view"},
		{"clusterrolebindings", "", "clusterrolebinding.role_ref.name == cluster-admin", "cluster-admin"},
		{"rolebindings", "", "rolebinding.namespace == dev", "dev/system:pipeline"},
		{"roles", "a == b", "", ""},
	} {
		if got := s.do("GET", all+tc.path+selectors(tc.label, tc.field), "").names(); got != tc.want {
			t.Errorf("%s with %q and %q: %s, want %s", tc.path, tc.label, tc.field, got, tc.want)
		}
	}
	s.do("GET", all+"users"+selectors("", "user.password_hash =~ '.'"), "").refuses(400, codeInvalid,
		`unknown field "user.password_hash" in field selector: the fields are user.disabled, user.groups, user.signed_out, user.username`)
	s.do("GET", all+"events"+selectors("", "event.check.state == failng"), "").refuses(400, codeInvalid,
		`field "event.check.state" in field selector: it is one of passing, failing, flapping, never "failng": did you mean "failing"?`)
	// Fields of entities follow their definitions: at once, since the change was answered.
	s.do("PATCH", "/api/core/v2/namespaces/dev/entities/db", `{"metadata":{"labels":{"region":"asia"}}}`,
		"Content-Type", mergePatchType).is(200)
	if got := s.do("GET", all+"events"+selectors("region in [us, asia]", "event.entity.labels.region == asia"),
		"").names(); got != "dev/db/disk" {
		t.Errorf("after a change: %s", got)
	}
	// Repeated parameters must all match.
	if got := s.do("GET", all+"checks?labelSelector=region%20in%20%5Beu%2Cus%5D&labelSelector=region%21%3Deu",
		"").names(); got != "default/b" {
		t.Errorf("two selectors: %s", got)
	}
	// Pages are filled.
	for _, tc := range []struct {
		path, field string
		want        string
	}{
		{"checks", "check.name != b", "default/a | dev/c"},
		{"events", "event.check.name == disk", "default/web/disk | dev/db/disk"},
		{"events", "event.check.output == full || event.check.status == 0", "default/web/cpu | default/web/disk"},
	} {
		if got := s.pages(all+tc.path+selectors("", tc.field), 1); got != tc.want {
			t.Errorf("%s with %q in pages: %s, want %s", tc.path, tc.field, got, tc.want)
		}
	}
}

// TestEveryListHeedsSelectors queries all lists with a selector that matches nothing, and with an invalid one.
func TestEveryListHeedsSelectors(t *testing.T) {
	s := newServer(t, nil)
	noLists := map[string]bool{"/api/core/v2/cluster/id": true, "/api/core/v2/cluster/members": true, "/api/core/v2/tessen": true}
	lists := 0
	for _, rt := range s.routes {
		if _, ok := rt.methods["GET"]; !ok || !strings.HasPrefix(rt.pattern, "/api/core/") || noLists[rt.pattern] {
			continue
		}
		if strings.HasSuffix(rt.pattern, "}") && !rt.list {
			continue
		}
		lists++
		path := strings.ReplaceAll(pathParameter.ReplaceAllString(rt.pattern, "x"), "namespaces/x", "namespaces/default")
		s.do("GET", path+selectors("", "a like b"), "").
			refuses(400, codeInvalid, `field selector: unexpected "like" at character 3: ==, !=, in, notin, matches, =~, !~, <, <=, > or >= expected`)
		s.do("GET", path+selectors("a = b", ""), "").
			refuses(400, codeInvalid, `label selector: unexpected "=" (equality is "==") at character 3`)
		if got := s.do("GET", path+selectors("", "nothing == x"), "").is(400); !strings.Contains(got.body, `unknown field \"nothing\" in field selector`) {
			t.Errorf("%s: %.200s", path, got.body)
		}
	}
	if lists < 25 {
		t.Errorf("only %d lists were asked", lists)
	}
}

// BenchmarkEntityList times the list of 40,000 entities with their agents' host data, from the request to the last
// byte.
//
//	go test -run '^$' -bench EntityList -benchmem ./api
func BenchmarkEntityList(b *testing.B) {
	const entities = 40_000
	s := newServer(b, func(o *Options) { o.State = &hosts{State: o.State, system: hostSystem()} })
	entityFleet(b, s, entities)
	for _, bc := range []struct{ name, query string }{
		{"all", ""},
		{"labels", selectors("region == r7", "")},
		{"system", selectors("", "entity.system.os == windows")},
		{"page", "?limit=100"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			bytes := 0
			for b.Loop() {
				bytes = len(s.do("GET", "/api/core/v2/entities"+bc.query, "").is(200).body)
			}
			b.ReportMetric(float64(bytes)/1e6, "MB")
		})
	}
}

// BenchmarkEventQuery times the first page of 100 of 400,000 events, 10 for each of 40,000 entities, from the request
// to the last byte, and reports the 95th percentile. Half of the queries find less than a page, so that they search all
// events.
//
//	go test -run '^$' -bench EventQuery -benchtime 200x ./api
func BenchmarkEventQuery(b *testing.B) {
	const entities, checks = 40_000, 10
	s := newServer(b, nil)
	entityFleet(b, s, entities)
	var sending sync.WaitGroup
	todo := make(chan int)
	for range 2000 { // each waits for the disk
		sending.Go(func() {
			for i := range todo {
				e, c := i%entities, i/entities
				ev := &resource.Event{
					Timestamp: time.Now().Unix(), ID: resource.NewEventID(),
					Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: fmt.Sprintf("web-%05d", e),
						Namespace: "default"}, EntityClass: "agent"},
					Check: &resource.Check{
						Metadata: resource.ObjectMeta{Name: fmt.Sprintf("check-%d", c), Namespace: "default"},
						Executed: time.Now().Unix() - int64(i%7200),
						Interval: 60, Subscriptions: []string{"linux", fmt.Sprintf("group-%d", c)},
						Handlers: []string{"slack"}, Output: strings.Repeat("all is well ", 20),
					},
				}
				if e%100 == c { // 1 in 100 is critical
					ev.Check.Status = 2
				}
				if err := s.intake.Submit(b.Context(), ev); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range entities * checks {
		todo <- i
	}
	close(todo)
	sending.Wait()
	for _, bc := range []struct{ name, label, field string }{
		{"everything", "", ""},
		{"critical", "", "event.check.status == 2"},
		{"nothing", "", "event.check.status == 3"},
		{"region-critical", "region == r7 && tier == prod", "event.check.status == 2"},
		{"old", "", "event.check.status != 0 && event.check.executed < now-1h && event.is_silenced == false && event.check.name == check-11"},
		{"regex", "", `event.entity.name =~ "9.*9$" && event.check.status > 0 && event.check.name =~ "[89]$"`},
		{"subscription", "", "group-11 in event.check.subscriptions || nope in event.entity.subscriptions"},
		{"label-nowhere", "region == nowhere", ""},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var times []time.Duration
			found := 0
			for b.Loop() {
				begin := time.Now()
				got := s.do("GET", "/api/core/v2/events"+selectors(bc.label, bc.field)+"&limit=100", "").is(200)
				times = append(times, time.Since(begin))
				found = strings.Count(got.body, `"check":{`)
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
			b.ReportMetric(float64(found), "found")
		})
	}
}

// entityFleet defines entities.
func entityFleet(b *testing.B, s *server, n int) {
	b.Helper()
	for i := range n {
		name := fmt.Sprintf("web-%05d", i)
		if err := config.Put(b.Context(), s.store, config.Entities, &resource.EntityConfig{
			Metadata: resource.ObjectMeta{Name: name, Namespace: "default",
				Labels: map[string]string{"region": fmt.Sprintf("r%d", i%50), "tier": "prod"}},
			EntityClass: "agent", Subscriptions: []string{"linux", "web", "entity:" + name}, User: "agent",
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// hosts is a state in which all entities run on equal hosts. It decodes their encoding each time, like State.
type hosts struct {
	State
	system []byte
}

func (h *hosts) EntityFacts(namespace, name string) (*resource.EntityState, bool) {
	st := new(resource.EntityState)
	if err := st.UnmarshalProto(h.system); err != nil {
		return nil, false
	}
	st.Metadata.Name, st.Metadata.Namespace = name, namespace
	return st, true
}

func hostSystem() []byte {
	var nics []resource.NetworkInterface
	for _, name := range []string{"lo", "eth0", "eth1"} {
		nics = append(nics, resource.NetworkInterface{Name: name, MAC: "02:42:ac:11:00:02",
			Addresses: []string{"172.17.0.2/16", "fe80::42:acff:fe11:2/64"}})
	}
	return (&resource.EntityState{
		System: resource.System{
			Hostname: "web.example.com", OS: "linux", Platform: "debian", PlatformFamily: "debian", PlatformVersion: "13.1", Arch: "amd64",
			LibCType: "glibc", VMSystem: "kvm", VMRole: "guest", CloudProvider: "EC2", Network: resource.Network{Interfaces: nics},
		},
		LastSeen: time.Now().Unix(), SensuAgentVersion: "6.12.0",
	}).AppendProto(nil)
}

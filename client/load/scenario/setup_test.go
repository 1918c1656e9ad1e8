package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small has what every backend supports.
const small = `name: small
needs: [proxy_requests]
agents: [{name: a, count: 3, subscriptions: [one]}]
checks:
  - {name: "plain-{n}", count: 30, interval: 10s, subscriptions: [one], handlers: [file], metrics: {format: graphite_plaintext, handlers: [file]}}
  - {name: proxies, interval: 5s, subscriptions: [one], round_robin: true, proxy_requests: {labels: {kind: switch}, splay: true, splay_coverage: 90}}
handlers:
  - {name: file, type: pipe, command: cat >/dev/null, timeout: 10s}
  - {name: socket, type: tcp, host: 127.0.0.1, port: 4000}
entities: [{name: "switch-{n}", count: 5, labels: {kind: switch}, subscriptions: [net]}]
`

// list names what a backend has of a kind.
func list[T any](t *testing.T, c *client.Client, k client.Kind[T]) (names []string) {
	t.Helper()
	found, err := client.List(t.Context(), c, client.Kind[head](k), "default", client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		names = append(names, f.Metadata.Name)
	}
	return names
}

func TestSetupOnBackend(t *testing.T) {
	b := testbackend.Start(t, nil)
	var log bytes.Buffer
	s := mustParse(t, small)
	s.Run, s.Logger = "run-1", slog.New(slog.NewTextHandler(&log, nil))

	// Existing objects must still exist afterwards.
	keep := func(name string, labels map[string]string) {
		t.Helper()
		meta := resource.ObjectMeta{Namespace: "default", Name: name, Labels: labels}
		check := resource.CheckConfig{Metadata: meta, Command: "true", Interval: 60, Subscriptions: []string{"none"}}
		if err := client.Put(t.Context(), b.Client, client.Checks, "default", name, &check); err != nil {
			t.Fatal(err)
		}
		entity := resource.Entity{Metadata: meta, EntityClass: "proxy"}
		if err := client.Put(t.Context(), b.Client, client.Entities, "default", name, &entity); err != nil {
			t.Fatal(err)
		}
	}
	keep("mine", nil)
	keep("a-0", map[string]string{Label: "run-2"}) // named like an agent, but of another run

	if err := s.Setup(t.Context(), b.Client); err != nil {
		t.Fatal(err)
	}
	if got := list(t, b.Client, client.Checks); len(got) != 33 {
		t.Errorf("checks %q", got)
	}
	c, err := client.Get(t.Context(), b.Client, client.Checks, "default", "proxies")
	if err != nil {
		t.Fatal(err)
	}
	attributes := []string{"entity.entity_class == 'proxy'", "entity.labels.kind == 'switch'"}
	if !c.RoundRobin || c.Interval != 5 || c.Command != Command || !c.Publish || c.Metadata.Labels[Label] != "run-1" ||
		!slices.Equal(c.ProxyRequests.EntityAttributes, attributes) || c.ProxyRequests.SplayCoverage != 90 {
		t.Errorf("check %+v with %+v", c, c.ProxyRequests)
	}
	h, err := client.Get(t.Context(), b.Client, client.Handlers, "default", "socket")
	if err != nil || h.Socket == nil || h.Socket.Port != 4000 || h.Metadata.Labels[Label] != "run-1" {
		t.Errorf("handler %+v, error %v", h, err)
	}
	e, err := client.Get(t.Context(), b.Client, client.Entities, "default", "switch-5")
	if err != nil || e.EntityClass != "proxy" || e.Metadata.Labels["kind"] != "switch" || e.Metadata.Labels[Label] != "run-1" {
		t.Errorf("entity %+v, error %v", e, err)
	}
	for _, want := range []string{`kind=checks count=31 names="plain-1 … proxies"`, "kind=handlers count=2", "kind=entities count=5"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}

	// A second time, as after a killed run.
	if err := s.Setup(t.Context(), b.Client); err != nil {
		t.Fatal(err)
	}

	// The agents have come, with their events.
	for _, name := range []string{"a-1", "a-2"} {
		entity := testbackend.Entity(name)
		entity.Metadata.Labels = map[string]string{Label: "run-1"}
		entity.EntityClass = "proxy" // agents' entities do not come through this API
		ev := testbackend.Event(name, "plain-1", 0, 1)
		ev.Entity = entity
		if err := client.Put(t.Context(), b.Client, client.Entities, "default", name, entity); err != nil {
			t.Fatal(err)
		}
		if err := client.Put(t.Context(), b.Client, client.Events, "default", client.EventName(name, "plain-1"), ev); err != nil {
			t.Fatal(err)
		}
	}

	// A new process has only the file and the name of the run.
	again := mustParse(t, small)
	again.Run = "run-1"
	if err := again.Cleanup(t.Context(), b.Client); err != nil {
		t.Fatal(err)
	}
	if got := list(t, b.Client, client.Checks); !slices.Equal(got, []string{"a-0", "mine"}) {
		t.Errorf("checks %q are left", got)
	}
	if got := list(t, b.Client, client.Entities); !slices.Equal(got, []string{"a-0", "mine"}) {
		t.Errorf("entities %q are left", got)
	}
	if got := list(t, b.Client, client.Handlers); len(got) != 0 {
		t.Errorf("handlers %q are left", got)
	}
	if events, err := client.List(t.Context(), b.Client, client.Events, "default", client.ListOptions{}); err != nil || len(events) != 0 {
		t.Errorf("%d events are left, error %v", len(events), err)
	}
	if err := s.Cleanup(t.Context(), b.Client); err != nil {
		t.Errorf("cleaning up what is clean: %v", err)
	}
}

// memory is a backend that only stores objects under their paths. It shows the requests to backends with more kinds
// than ours.
type memory struct {
	mu      sync.Mutex // guards the fields below
	objects map[string]json.RawMessage
	puts    []string
	most    int                           // requests at the same time
	fail    func(method, path string) int // a status, or 0

	now atomic.Int64
}

func (m *memory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	now := m.now.Add(1)
	defer m.now.Add(-1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most = max(m.most, int(now))
	if m.fail != nil {
		if status := m.fail(r.Method, r.URL.Path); status != 0 {
			http.Error(w, `{"message":"broken","code":0}`, status)
			return
		}
	}
	switch r.Method {
	case http.MethodPut:
		m.objects[r.URL.Path] = body
		m.puts = append(m.puts, r.URL.Path)
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		delete(m.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	default:
		if o, ok := m.objects[r.URL.Path]; ok {
			_, _ = w.Write(o)
			return
		}
		all := []json.RawMessage{}
		for _, path := range slices.Sorted(maps.Keys(m.objects)) {
			if strings.HasPrefix(path, r.URL.Path+"/") {
				all = append(all, m.objects[path])
			}
		}
		if len(all) == 0 && !strings.HasSuffix(r.URL.Path, "/entities") {
			http.Error(w, `{"message":"not found","code":2}`, http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(all)
	}
}

func inMemory(t *testing.T) (*memory, *client.Client) {
	t.Helper()
	m := &memory{objects: map[string]json.RawMessage{}}
	srv := httptest.NewServer(m)
	c, err := client.New(client.Options{URL: srv.URL, APIKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); srv.Close() })
	return m, c
}

func TestSetupOfAllKinds(t *testing.T) {
	m, c := inMemory(t)
	s := mustParse(t, full)
	if err := s.Setup(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	const stream = "/api/enterprise/pipeline/v1/namespaces/load/tcp-stream-handlers/stream"
	f := func(path, want string) {
		t.Helper()
		if got := string(m.objects[path]); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	f(stream, `{"api_version":"pipeline/v1","metadata":{"name":"stream","namespace":"load","labels":{"lapwing-load":"full"}},`+
		`"spec":{"address":"127.0.0.1:9999","max_connections":100},"type":"TCPStreamHandler"}`)
	f("/api/core/v2/namespaces/load/pipelines/stream", `{"metadata":{"name":"stream","namespace":"load","labels":{"a":"b","lapwing-load":"full"},"annotations":{"c":"d"}},`+
		`"workflows":[{"handler":{"api_version":"pipeline/v1","name":"stream","type":"TCPStreamHandler"},"name":"w"}]}`)
	var check resource.CheckConfig
	if err := json.Unmarshal(m.objects["/api/core/v2/namespaces/load/checks/proxy"], &check); err != nil {
		t.Fatal(err)
	}
	if len(check.Pipelines) != 1 || check.Pipelines[0] != (resource.ResourceReference{Name: "stream", Type: "Pipeline", APIVersion: "core/v2"}) || check.ProxyEntityName != "switch-2" {
		t.Errorf("check %+v", check)
	}
	if len(m.objects) != 2+4+4+7 || m.most > creating {
		t.Errorf("%d objects, up to %d at the same time", len(m.objects), m.most)
	}
	if m.puts[0] != stream {
		t.Errorf("%s came before what it refers to", m.puts[0])
	}
	// The checks come last, or the first events would find no handler.
	for i, path := range m.puts {
		if is := strings.Contains(path, "/checks/"); is != (i >= 10) {
			t.Errorf("%s was number %d", path, i)
		}
	}
	if err := s.Cleanup(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(m.objects) != 0 {
		t.Errorf("left: %v", slices.Sorted(maps.Keys(m.objects)))
	}
}

func TestSetupSparesOthers(t *testing.T) {
	m, c := inMemory(t)
	const path = "/api/core/v2/namespaces/load/checks/proxies"
	m.objects[path] = json.RawMessage(`{"metadata":{"name":"proxies","namespace":"load"}}`)
	s := mustParse(t, full)
	err := s.Setup(t.Context(), c)
	if want := "set up full: check proxies is there already, and was not made by a load run"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := s.Cleanup(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(m.objects) != 1 || m.objects[path] == nil {
		t.Errorf("left: %v", slices.Sorted(maps.Keys(m.objects)))
	}
}

func TestSetupFails(t *testing.T) {
	m, c := inMemory(t)
	s := mustParse(t, full)
	m.fail = func(method, path string) int {
		if method == http.MethodPut && strings.HasSuffix(path, "/plain-3") {
			return http.StatusInternalServerError
		}
		return 0
	}
	err := s.Setup(t.Context(), c)
	if want := "set up full: create check plain-3: PUT /api/core/v2/namespaces/load/checks/plain-3: broken"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	m.fail = func(method, path string) int {
		if method == http.MethodDelete && (strings.HasSuffix(path, "/switch-2") || strings.HasSuffix(path, "/file")) {
			return http.StatusInternalServerError
		}
		return 0
	}
	err = s.Cleanup(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "remove entity switch-2: ") || !strings.Contains(err.Error(), "remove handler file: ") {
		t.Errorf("error %v", err)
	}
	if len(m.objects) != 2 {
		t.Errorf("left: %v", slices.Sorted(maps.Keys(m.objects)))
	}
	m.fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Setup(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := s.Cleanup(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestRequestBytes: a request has the length that the scenario wants, for each check and with its turn.
func TestRequestBytes(t *testing.T) {
	s := mustParse(t, `name: lab
agents: [{name: a, count: 3, subscriptions: [one, two]}]
checks:
  - {name: "robin-{n}", count: 20000, interval: 1s, subscriptions: [one, two], round_robin: true, request_bytes: 1024}
  - {name: "plain-{n}", count: 2, interval: 1s, subscriptions: [one], request_bytes: 700}
  - {name: short, interval: 1s, subscriptions: [one], request_bytes: 10}
`)
	size := func(c *resource.CheckConfig, subscription string) int {
		if subscription != "" {
			c.Metadata.Annotations[resource.TurnAnnotation] = "1799999999 " + subscription + " 1799999999000000"
		}
		return len((&resource.CheckRequest{Config: c, Issued: 1_799_999_999}).AppendProto(nil))
	}
	for _, n := range []int{1, 9, 10, 20_000} {
		for _, subscription := range []string{"one", "two"} {
			if got := size(s.Checks[0].config(s, n), subscription); got != 1024 {
				t.Errorf("a turn of check %d has %d bytes", n, got)
			}
		}
	}
	if got := size(s.Checks[1].config(s, 2), ""); got != 700 {
		t.Errorf("a request has %d bytes", got)
	}
	for _, c := range s.Checks {
		if _, has := c.config(s, 1).Metadata.Annotations[resource.TurnAnnotation]; has {
			t.Errorf("the definition of %s has a turn", c.Name)
		}
	}
	if a := s.Checks[2].config(s, 1).Metadata.Annotations; len(a) != 0 {
		t.Errorf("a definition that is long enough has the annotations %v", a)
	}
}

// TestProxyEntityInTurn: checks share a number of proxy entities.
func TestProxyEntityInTurn(t *testing.T) {
	s := mustParse(t, `name: lab
agents: [{name: a, count: 3, subscriptions: [one]}]
checks:
  - {name: "many-{n}", count: 7, interval: 1s, subscriptions: [one], proxy_entity: "switch-{n}"}
  - {name: one, interval: 1s, subscriptions: [one], proxy_entity: switch-2}
entities: [{name: "switch-{n}", count: 3}]
`)
	for n, want := range []string{"switch-1", "switch-2", "switch-3", "switch-1", "switch-2", "switch-3", "switch-1"} {
		if got := s.Checks[0].config(s, n+1).ProxyEntityName; got != want {
			t.Errorf("check %d is for %s, want %s", n+1, got, want)
		}
	}
	if got := s.Checks[1].config(s, 1).ProxyEntityName; got != "switch-2" {
		t.Errorf("the other check is for %s", got)
	}
}

// TestSetupLate: checks that come last are created last, and removed with all else.
func TestSetupLate(t *testing.T) {
	m, c := inMemory(t)
	s := mustParse(t, strings.Replace(full, "checks_last: false", "checks_last: true", 1))
	f := func(setup func(context.Context, *client.Client) error, want int) {
		t.Helper()
		if err := setup(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if len(m.objects) != want {
			t.Errorf("%d objects, want %d", len(m.objects), want)
		}
	}
	s.Load.CreateParallel = 1
	f(s.Setup, 2+4+4)
	f(s.SetupLate, 2+4+4+7)
	if m.most != 1 {
		t.Errorf("%d objects were created at the same time, want one", m.most)
	}
	f(s.Cleanup, 0)
	s.Load.ChecksLast = false
	f(s.Setup, 2+4+4+7)
	puts := len(m.puts)
	f(s.SetupLate, 2+4+4+7)
	if len(m.puts) != puts {
		t.Error("objects were created twice")
	}
}

// TestRunners: the rate of a check counts the agents that have one of its subscriptions.
func TestRunners(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	for each := range 6 {
		for count := 1; count <= 12; count++ {
			for _, subscriptions := range [][]string{{"a"}, {"b", "d"}, {"x"}, {"x", "e"}, all} {
				g := Agents{Count: count, Subscriptions: all, SubscriptionsPerAgent: each}
				want := 0
				for index := 1; index <= count; index++ {
					own := all
					if each > 0 {
						own = append(append([]string{}, all...), all...)[index%5 : index%5+each]
					}
					if slices.ContainsFunc(own, func(s string) bool { return slices.Contains(subscriptions, s) }) {
						want++
					}
				}
				if got := g.with(subscriptions); got != want {
					t.Errorf("%d of %d agents with %d each have one of %v, want %d", got, count, each, subscriptions, want)
				}
			}
		}
	}
}

package test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// alerted is a webhook that reports its events, as entity/check status.
func alerted(t *testing.T, b *testbackend.Backend, h *resource.Handler, name string) chan *resource.Event {
	t.Helper()
	got := make(chan *resource.Event, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ev := new(resource.Event)
		if err := json.NewDecoder(r.Body).Decode(ev); err != nil {
			t.Error(err)
		}
		got <- ev
	}))
	t.Cleanup(hook.Close)
	h.Type, h.Webhook = "webhook", &resource.HandlerWebhook{URL: hook.URL}
	putHandler(t, b, h, name)
	return got
}

func next(t *testing.T, got chan *resource.Event) *resource.Event {
	t.Helper()
	select {
	case ev := <-got:
		return ev
	case <-time.After(time.Minute):
		t.Fatal("no alert came")
		return nil
	}
}

func put[T any](t *testing.T, b *testbackend.Backend, k client.Kind[T], name string, obj *T) {
	t.Helper()
	if err := client.Put(t.Context(), b.Client, k, "default", name, obj); err != nil {
		t.Fatal(err)
	}
}

func result(t *testing.T, b *testbackend.Backend, entity, check string, status uint32) {
	t.Helper()
	ev := testbackend.Event(entity, check, status, time.Now().Unix())
	ev.Entity.EntityClass = "proxy"
	ev.Check.Handlers = []string{"hook"}
	put(t, b, client.Events, client.EventName(entity, check), ev)
}

// TestDependenciesInhibit has a web server behind a switch behind a router. While the router fails, only the router
// alerts.
func TestDependenciesInhibit(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	got := alerted(t, b, &resource.Handler{Filters: []string{"is_incident"}}, "hook")
	proxy := func(name string, deps ...string) *resource.Entity {
		return &resource.Entity{EntityClass: "proxy", Metadata: resource.ObjectMeta{Namespace: "default", Name: name}, DependsOn: deps}
	}
	put(t, b, client.Entities, "web1", proxy("web1", "switch1/"))
	put(t, b, client.Entities, "switch1", proxy("switch1", "router1/ping"))

	result(t, b, "router1", "ping", 2)
	if ev := next(t, got); ev.Entity.Metadata.Name != "router1" {
		t.Fatalf("the first alert is of %s", ev.Entity.Metadata.Name)
	}
	result(t, b, "web1", "http", 2)
	result(t, b, "switch1", "ping", 2)
	var report struct {
		Inhibited bool
		By        []string
	}
	if err := b.Client.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/events/web1/http/dependencies", nil, &report); err != nil {
		t.Fatal(err)
	}
	if way := strings.Join(report.By, " "); !report.Inhibited || way != "switch1/ping" {
		t.Errorf("web1/http is inhibited: %v, by %q", report.Inhibited, way)
	}
	eventually(t, 20*time.Second, "both incidents are inhibited", func() bool { return b.Counter(t, "lapwing_inhibit_incidents_total") >= 2 })

	// The router recovers and the switch does not: it alerts now, and still inhibits what is behind it.
	result(t, b, "router1", "ping", 0)
	if ev := next(t, got); ev.Entity.Metadata.Name != "router1" || ev.Check.Status != 0 {
		t.Fatalf("then came %s with %d", ev.Entity.Metadata.Name, ev.Check.Status)
	}
	result(t, b, "web1", "http", 2)
	result(t, b, "switch1", "ping", 2)
	if ev := next(t, got); ev.Entity.Metadata.Name != "switch1" || ev.Check.Status != 2 {
		t.Fatalf("then came %s with %d", ev.Entity.Metadata.Name, ev.Check.Status)
	}
	result(t, b, "switch1", "ping", 0)
	if ev := next(t, got); ev.Entity.Metadata.Name != "switch1" {
		t.Fatalf("then came %s", ev.Entity.Metadata.Name)
	}
	result(t, b, "web1", "http", 2)
	if ev := next(t, got); ev.Entity.Metadata.Name != "web1" || ev.Check.Status != 2 {
		t.Fatalf("then came %s with %d", ev.Entity.Metadata.Name, ev.Check.Status)
	}
}

// TestAggregates has an aggregate for each rack and a service over those, whose result alerts. When the aggregate is
// deleted its alert is resolved and its events are removed.
func TestAggregates(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	got := alerted(t, b, &resource.Handler{Filters: []string{"is_incident"}}, "service")
	for name, rack := range map[string]string{"a1": "a", "a2": "a", "b1": "b", "b2": "b", "b3": "b"} {
		e := &resource.Entity{EntityClass: "proxy", Metadata: resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"rack": rack}}}
		put(t, b, client.Entities, name, e)
		result(t, b, name, "disk", map[bool]uint32{true: 2}[rack == "a"])
	}
	meta := func(name string) resource.ObjectMeta { return resource.ObjectMeta{Namespace: "default", Name: name} }
	racks := &resource.Aggregate{
		Metadata: meta("racks"), FieldSelector: "event.check.name == disk", GroupBy: "entity.labels.rack",
		Critical: &resource.AggregateThreshold{Percent: 50}, Interval: 1,
		Result: resource.ComputedResult{Labels: map[string]string{"service": "shop"}},
	}
	shop := &resource.Aggregate{
		Metadata: meta("shop"), LabelSelector: "service == shop", Warning: &resource.AggregateThreshold{Count: 1}, Interval: 1,
		Result: resource.ComputedResult{Check: "health", Handlers: []string{"service"}},
	}
	put(t, b, client.Aggregates, "racks", racks)
	put(t, b, client.Aggregates, "shop", shop)

	ev := next(t, got)
	if ev.Entity.Metadata.Name != "shop" || ev.Check.Metadata.Name != "health" || ev.Check.Status != 1 || !strings.Contains(ev.Check.Output, "\nracks-a/aggregate\n") {
		t.Errorf("the alert is %s/%s %d: %s", ev.Entity.Metadata.Name, ev.Check.Metadata.Name, ev.Check.Status, ev.Check.Output)
	}
	status := func(entity string) (uint32, bool) {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", client.EventName(entity, "aggregate"))
		if err != nil {
			return 0, false
		}
		return ev.Check.Status, true
	}
	if a, ok := status("racks-a"); a != 2 || !ok {
		t.Errorf("rack a is %d, %v", a, ok)
	}
	if b, ok := status("racks-b"); b != 0 || !ok {
		t.Errorf("rack b is %d, %v", b, ok)
	}
	var found []resource.AggregateEvaluation
	if err := b.Client.Do(t.Context(), http.MethodGet, "/api/lapwing/v1/namespaces/default/aggregates/racks/evaluation", nil, &found); err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0].Members != 2 || found[0].Failing != 2 || found[1].Members != 3 || found[1].Status != 0 {
		t.Errorf("an evaluation finds %+v", found)
	}

	if err := client.Delete(t.Context(), b.Client, client.Aggregates, "default", "racks"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the results of racks are gone", func() bool { _, ok := status("racks-a"); return !ok })
	eventually(t, 20*time.Second, "the service is well", func() bool {
		select {
		case ev := <-got:
			return ev.Check.Status == 0
		default:
			return false
		}
	})
}

// TestGroupsResolve groups the incidents of a rack, of which one is resolved before the other: the alert under the
// group's name is resolved only with the last.
func TestGroupsResolve(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	got := alerted(t, b, &resource.Handler{
		Filters: []string{"is_incident", "not_silenced"}, Group: &resource.HandlerGroup{By: []string{"entity.labels.rack"}, Wait: 1, Fold: 1},
	}, "hook")
	for _, name := range []string{"a1", "a2", "b1"} {
		e := &resource.Entity{EntityClass: "proxy", Metadata: resource.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"rack": `"` + name[:1] + `\`}}}
		put(t, b, client.Entities, name, e)
	}
	result(t, b, "b1", "disk", 2)
	alert := func(output string, status uint32) {
		t.Helper()
		ev := next(t, got)
		first, _, _ := strings.Cut(ev.Check.Output, "\n")
		if first != output || ev.Check.Status != status || ev.Check.Metadata.Name != "several" {
			t.Errorf("the alert is %s/%s %d %q, want %d %q", ev.Entity.Metadata.Name, ev.Check.Metadata.Name, ev.Check.Status, first, status, output)
		}
	}
	alert(`"b\: 1 disk check failing (1 critical)`, 2)
	result(t, b, "a1", "disk", 2)
	result(t, b, "a2", "disk", 1)
	alert(`"a\: 2 disk checks failing (1 critical, 1 warning)`, 2)
	result(t, b, "a1", "disk", 0)
	alert(`"a\: 1 disk check resolved, 1 other still failing`, 1)
	result(t, b, "a2", "disk", 0)
	alert(`"a\: 1 disk check resolved`, 0)
}

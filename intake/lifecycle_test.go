package intake_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// post sends an event through the API.
func post(t *testing.T, b *testbackend.Backend, entity, class, check string, change func(*resource.Event)) {
	t.Helper()
	ev := &resource.Event{
		Entity: &resource.Entity{Metadata: resource.ObjectMeta{Name: entity, Namespace: "default"}, EntityClass: class},
		Check:  &resource.Check{Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Interval: 1, Executed: time.Now().Unix()},
	}
	if change != nil {
		change(ev)
	}
	if err := client.Post(t.Context(), b.Client, client.Events, "default", ev); err != nil {
		t.Fatal(err)
	}
}

func newEntity(t *testing.T, b *testbackend.Backend, name, class string, ttl int64) {
	t.Helper()
	e := &resource.Entity{Metadata: resource.ObjectMeta{Name: name, Namespace: "default"}, EntityClass: class, TTL: ttl}
	if err := client.Put(t.Context(), b.Client, client.Entities, "default", name, e); err != nil {
		t.Fatal(err)
	}
}

func ttl5(ev *resource.Event) { ev.Check.TTL = 5 }

// TestTTL lets all kinds of deadlines pass at the same time, since that takes a while.
func TestTTL(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	get := func(entity, check string) *resource.Event {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", entity+"/"+check)
		if err != nil {
			return nil
		}
		return ev
	}
	past := &resource.Calendar{Metadata: resource.ObjectMeta{Name: "past", Namespace: "default"},
		Windows: []resource.CalendarWindow{{Dates: []string{"2001-01-01"}}}}
	if err := client.Put(t.Context(), b.Client, client.Calendars, "default", "past", past); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*resource.CheckConfig{
		{Metadata: resource.ObjectMeta{Name: "outside"}, Calendars: &resource.CheckCalendars{RunWithin: []string{"past"}}},
		{Metadata: resource.ObjectMeta{Name: "inside"}, Calendars: &resource.CheckCalendars{NotWithin: []string{"past", "gone"}}},
		{Metadata: resource.ObjectMeta{Name: "always"}, TTLWithoutKeepalive: true, TTLStatus: 2},
		{Metadata: resource.ObjectMeta{Name: "plain"}},
		{Metadata: resource.ObjectMeta{Name: "turns"}, RoundRobin: true},
	} {
		c.Metadata.Namespace, c.Interval, c.TTL, c.Command, c.Subscriptions = "default", 1, 5, "true", []string{"linux"}
		if err := client.Put(t.Context(), b.Client, client.Checks, "default", c.Metadata.Name, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"dead", "alive", "turn1", "turn2", "turn3"} {
		newEntity(t, b, name, "agent", 0)
	}
	newEntity(t, b, "router", "proxy", 9)
	newEntity(t, b, "idle", "proxy", 1)
	newEntity(t, b, "stays", "proxy", -1)
	newEntity(t, b, "agent", "agent", 1)
	turns := func(ev *resource.Event) { ev.Check.TTL, ev.Check.RoundRobin = 5, true }

	post(t, b, "dead", "agent", "keepalive", func(ev *resource.Event) { ev.Check.Status, ev.Check.Timeout = 1, 120 })
	for _, entity := range []string{"dead", "alive"} {
		post(t, b, entity, "agent", "always", ttl5)
		post(t, b, entity, "agent", "plain", ttl5)
		post(t, b, entity, "agent", "undefined", ttl5)
	}
	post(t, b, "alive", "agent", "outside", ttl5)
	post(t, b, "alive", "agent", "inside", ttl5)
	post(t, b, "turn1", "agent", "turns", turns)
	post(t, b, "router", "proxy", "ping", ttl5)
	post(t, b, "stays", "proxy", "ping", nil)
	began := time.Now()
	time.Sleep(time.Second) // puts the deadline of turn1 that much before the one of turn2; after four more seconds it would pass
	post(t, b, "turn2", "agent", "turns", turns)

	missing := func(status uint32) func(*resource.Event) bool {
		return func(ev *resource.Event) bool {
			return ev.Check.Status == status && strings.HasPrefix(ev.Check.Output, "Last check execution was ")
		}
	}
	eventually(t, b, "alive/always", missing(2))
	eventually(t, b, "alive/plain", missing(1))
	eventually(t, b, "alive/inside", missing(1))
	eventually(t, b, "alive/undefined", missing(1))
	eventually(t, b, "dead/always", missing(2))
	router := eventually(t, b, "router/ping", missing(1))
	if router.Metadata.Annotations["lapwing.io/last-result"] == "" {
		t.Errorf("the event does not say when there was a result: %+v", router.Metadata)
	}
	eventually(t, b, "turn2/turns", missing(1)) // no agent has run the check since
	post(t, b, "turn3", "agent", "turns", turns)
	eventually(t, b, "turn2/turns", func(ev *resource.Event) bool {
		return ev.Check.Status == 0 && ev.Check.Output == "Another agent has run the check since"
	})
	for _, name := range []string{"alive/outside", "dead/plain", "dead/undefined", "turn1/turns"} {
		entity, check, _ := strings.Cut(name, "/")
		if ev := get(entity, check); ev == nil || ev.Check.Status != 0 {
			t.Errorf("%s is %+v", name, ev)
		}
	}
	// The failures of its check, one every five seconds, do not keep the entity. Its definition goes first, then its
	// events, and it counts as removed once all is gone.
	for b.Counter(t, "lapwing_entities_removed_total") < 2 {
		if time.Since(began) > 3*time.Minute {
			t.Fatalf("%v entities removed, want 2", b.Counter(t, "lapwing_entities_removed_total"))
		}
		<-time.After(50 * time.Millisecond) // between checks for a state that must come
	}
	for _, name := range []string{"idle", "router"} {
		if _, err := client.Get(t.Context(), b.Client, client.Entities, "default", name); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("entity %s is still there, %v", name, err)
		}
	}
	if get("router", "ping") != nil {
		t.Error("the entity's event is still there")
	}
	for _, name := range []string{"stays", "agent", "alive"} {
		if _, err := client.Get(t.Context(), b.Client, client.Entities, "default", name); err != nil {
			t.Errorf("entity %s: %v", name, err)
		}
	}
}

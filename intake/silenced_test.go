package intake_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// connect connects an agent, which registers.
func connect(t *testing.T, b *testbackend.Backend, name string) *wire.Conn {
	t.Helper()
	conn, _ := b.DialAgent(t, name, nil)
	if err := conn.Write(testbackend.Keepalive(t, name, wire.Protobuf)); err != nil {
		t.Fatal(err)
	}
	eventually(t, b, name+"/keepalive", func(*resource.Event) bool { return true })
	return conn
}

// silence makes a silence through the API.
func silence(t *testing.T, b *testbackend.Backend, subscription, check string, change func(*resource.Silenced)) string {
	t.Helper()
	s := &resource.Silenced{Metadata: resource.ObjectMeta{Namespace: "default"}, Subscription: subscription, Check: check}
	if change != nil {
		change(s)
	}
	if err := client.Post(t.Context(), b.Client, client.Silences, "default", s); err != nil {
		t.Fatal(err)
	}
	return s.DerivedName()
}

// eventually waits until an event is in the expected state, and returns it.
func eventually(t *testing.T, b *testbackend.Backend, name string, is func(*resource.Event) bool) *resource.Event {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", name)
		if err == nil && is(ev) {
			return ev
		}
		if time.Now().After(deadline) {
			t.Fatalf("event %s is %+v, %v", name, ev, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// sees checks the silences of an event, and that its fields about them agree.
func sees(t *testing.T, what string, ev *resource.Event, want string) {
	t.Helper()
	if got := strings.Join(ev.Check.Silenced, " "); got != want || ev.Check.IsSilenced != (want != "") {
		t.Errorf("%s: silenced %v by %q, want %q", what, ev.Check.IsSilenced, got, want)
	}
}

func TestAgentsEventsAreSilenced(t *testing.T) {
	b := testbackend.Start(t, nil)
	a := connect(t, b, "web1")
	executed := time.Now().Unix() - 100
	send := func(entity, check string, change func(*resource.Event)) *resource.Event {
		t.Helper()
		executed++
		ev := testbackend.Event("web1", check, 2, executed)
		if change != nil {
			change(ev)
		}
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Write(frame); err != nil {
			t.Fatal(err)
		}
		return eventually(t, b, entity+"/"+check, func(ev *resource.Event) bool { return ev.Check.Executed == executed })
	}
	sees(t, "without silences", send("web1", "disk", nil), "")
	sees(t, "what an agent says of silences", send("web1", "disk", func(ev *resource.Event) {
		ev.Check.Silenced, ev.Check.IsSilenced = []string{"mine:*"}, true
	}), "")
	sees(t, "only that it is", send("web1", "disk", func(ev *resource.Event) { ev.Check.IsSilenced = true }), "")

	of := silence(t, b, "linux", "disk", nil)
	sees(t, "the next event", send("web1", "disk", nil), of)
	sees(t, "another check", send("web1", "cpu", nil), "")
	sees(t, "a subscription that only the entity has",
		send("web1", "disk", func(ev *resource.Event) { ev.Check.Subscriptions = []string{"db"} }), "")
	silence(t, b, "db", "", nil)
	sees(t, "a subscription that only the check has",
		send("web1", "disk", func(ev *resource.Event) { ev.Check.Subscriptions = []string{"db"} }), "")
	everywhere, whole := silence(t, b, "", "cpu", nil), silence(t, b, "entity:web1", "", nil)
	sees(t, "several", send("web1", "cpu", nil), everywhere+" "+whole)
	sees(t, "and what an agent says",
		send("web1", "cpu", func(ev *resource.Event) { ev.Check.Silenced = []string{"mine:*"} }), everywhere+" "+whole)
	sees(t, "a proxy entity", send("router", "cpu", func(ev *resource.Event) { ev.Check.ProxyEntityName = "router" }), everywhere)
	proxy := silence(t, b, "entity:router", "cpu", nil)
	sees(t, "a silenced proxy entity",
		send("router", "cpu", func(ev *resource.Event) { ev.Check.ProxyEntityName = "router" }), everywhere+" "+proxy)

	if err := client.Delete(t.Context(), b.Client, client.Silences, "default", whole); err != nil {
		t.Fatal(err)
	}
	sees(t, "one silence less", send("web1", "cpu", nil), everywhere)
	silence(t, b, "entity:web1", "", func(s *resource.Silenced) { s.Begin = time.Now().Unix() + 3600 })
	sees(t, "a silence that is to come", send("web1", "cpu", nil), everywhere)
	if n := b.Counter(t, "lapwing_events_silenced_total"); n < 6 {
		t.Errorf("%v silenced events are counted", n)
	}

	// Keepalives are silenced like other events.
	of = silence(t, b, "", "keepalive", nil)
	if err := a.Write(testbackend.Keepalive(t, "web1", wire.Protobuf)); err != nil {
		t.Fatal(err)
	}
	eventually(t, b, "web1/keepalive", func(ev *resource.Event) bool {
		return strings.Join(ev.Check.Silenced, " ") == of && ev.Check.IsSilenced
	})
}

// TestMissingResultsAreSilenced: the silences of now apply to a missing result, not those of the last result.
func TestMissingResultsAreSilenced(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	before := silence(t, b, "", "backup", nil)
	ev := testbackend.Event("web1", "backup", 0, time.Now().Unix())
	ev.Entity.EntityClass = resource.EntityProxyClass
	ev.Check.TTL, ev.Check.Interval = 5, 4
	if err := client.Post(t.Context(), b.Client, client.Events, "default", ev); err != nil {
		t.Fatal(err)
	}
	sees(t, "the result", eventually(t, b, "web1/backup", func(*resource.Event) bool { return true }), before)
	if err := client.Delete(t.Context(), b.Client, client.Silences, "default", before); err != nil {
		t.Fatal(err)
	}
	now := silence(t, b, "entity:web1", "", nil)
	late := eventually(t, b, "web1/backup", func(ev *resource.Event) bool { return ev.Check.Status == 1 })
	sees(t, "its absence", late, now)
}

func TestSilencesThatEndWithTheIncident(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	until := silence(t, b, "", "disk", func(s *resource.Silenced) { s.ExpireOnResolve = true })
	forever := silence(t, b, "entity:web1", "disk", nil)
	send := func(entity string, status uint32) *resource.Event {
		t.Helper()
		ev := testbackend.Event(entity, "disk", status, time.Now().Unix())
		ev.Entity.EntityClass = resource.EntityProxyClass
		if err := client.Post(t.Context(), b.Client, client.Events, "default", ev); err != nil {
			t.Fatal(err)
		}
		ev, err := client.Get(t.Context(), b.Client, client.Events, "default", entity+"/disk")
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	there := func(name string) bool {
		t.Helper()
		_, err := client.Get(t.Context(), b.Client, client.Silences, "default", name)
		var refused *client.Error
		if err != nil && (!errors.As(err, &refused) || refused.Status != 404) {
			t.Fatal(err)
		}
		return err == nil
	}
	sees(t, "well before any incident", send("web1", 0), until+" "+forever)
	sees(t, "the incident", send("web1", 2), until+" "+forever)
	sees(t, "it goes on", send("web1", 1), until+" "+forever)
	sees(t, "elsewhere nothing is resolved", send("web2", 0), until)
	if !there(until) {
		t.Fatal("the silence ended before the incident")
	}
	sees(t, "the resolution", send("web1", 0), forever)
	for deadline := time.Now().Add(time.Minute); there(until); {
		if time.Now().After(deadline) {
			t.Fatal("the silence is still there")
		}
	}
	sees(t, "the next incident", send("web1", 2), forever)
	if !there(forever) {
		t.Error("a silence ended that was not to")
	}
	if n := b.Counter(t, "lapwing_silences_ended_total"); n != 1 {
		t.Errorf("%v silences are counted as ended, want 1", n)
	}
}

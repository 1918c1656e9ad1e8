package test

import (
	"slices"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestAgentsKeepTheirNames has one agent claim the name of another with a result for a proxy entity: of one that is
// connected but has no entity yet, and of one that has not connected yet.
func TestAgentsKeepTheirNames(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	entity := func(name string) *resource.Entity {
		e, err := client.Get(t.Context(), b.Client, client.Entities, "default", name)
		if err != nil {
			return nil
		}
		return e
	}
	isAgent := func(name string) func() bool {
		return func() bool {
			e := entity(name)
			return e != nil && e.EntityClass == resource.EntityAgentClass && slices.Contains(e.Subscriptions, "linux") &&
				!slices.Contains(e.Subscriptions, "thieves")
		}
	}
	thief, _ := b.DialAgent(t, "thief", nil)
	claim := func(name string) {
		ev := testbackend.Event(name, "claim", 0, time.Now().Unix())
		ev.Entity.EntityClass = resource.EntityProxyClass
		ev.Entity.Metadata.CreatedBy = "admin"
		ev.Entity.Subscriptions = []string{"thieves"}
		frame, err := wire.Append(nil, wire.TypeEvent, wire.Protobuf, ev)
		if err == nil {
			err = thief.Write(frame)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	keepalive := func(conn *wire.Conn, name string) {
		if err := conn.Write(testbackend.Keepalive(t, name, wire.Protobuf)); err != nil {
			t.Fatal(err)
		}
	}

	present, _ := b.DialAgent(t, "present", nil)
	eventually(t, 60*time.Second, "both sessions are known", func() bool { return b.Counter(t, "lapwing_agent_sessions") == 2 })
	claim("present")
	eventually(t, 60*time.Second, "the claim is refused", func() bool { return b.Counter(t, "lapwing_events_rejected_total") == 1 })
	if e := entity("present"); e != nil {
		t.Errorf("the claim made an entity: %+v", e)
	}
	keepalive(present, "present")
	eventually(t, 60*time.Second, "the agent is registered", isAgent("present"))

	claim("future")
	eventually(t, 60*time.Second, "the claim makes an entity", func() bool { return entity("future") != nil })
	future, _ := b.DialAgent(t, "future", nil)
	keepalive(future, "future")
	eventually(t, 60*time.Second, "the entity becomes the agent's", isAgent("future"))
}

package intake

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lapwing-monitoring/lapwing/resource"
)

// TestDebtPasses: an agent that returns to its rate is soon free again, and its use is dropped if it has gone.
func TestDebtPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuotas(Quotas{AgentEvents: 10, NamespaceEvents: 100}, nil, prometheus.NewRegistry())
		m, again := q.meter("default", "flood"), q.meter("default", "flood")
		for range 100_000 {
			m.Spend()
		}
		if wait, _ := m.Wait(); wait <= 0 || wait > MaxHeld {
			t.Errorf("after a flood an event has to wait %s", wait)
		}
		m.Leave()
		again.Leave()
		if again = q.meter("default", "flood"); again.agent != m.agent {
			t.Error("connecting anew has ended the debt")
		}
		time.Sleep(MaxHeld + rateBurst)
		if wait, _ := again.Wait(); wait != 0 {
			t.Errorf("later an event has to wait %s", wait)
		}
		again.Spend()
		again.Leave()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(q.users); n != 1 {
			t.Errorf("%d users are known, want the namespace alone", n)
		}
	})
}

// TestUsesAreCounted: an agent's use is counted once, and dropped with its last entity.
func TestUsesAreCounted(t *testing.T) {
	q := newQuotas(Quotas{AgentEntities: 10, AgentBytes: 100, NamespaceBytes: 1000}, nil, prometheus.NewRegistry())
	want := func(when string, bytes int64, users int) {
		t.Helper()
		if _, got := q.used("default", "a"); got != bytes || len(q.users) != users {
			t.Errorf("%s: %d bytes and %d users, want %d and %d", when, got, len(q.users), bytes, users)
		}
	}
	store := func(agent, entity string, size int, refused bool) {
		t.Helper()
		if err := q.store("default", agent, entity, "check", size); (err != nil) != refused {
			t.Errorf("%s: %v", entity, err)
		}
	}
	store("a", "large", 101, true)
	want("refused", 0, 1)
	if _, ok := q.known.Load(resource.Name{Namespace: "default", Name: "large"}); ok {
		t.Error("an entity is known of which nothing is stored")
	}
	if err := q.mayMake(nil, "default", "stranger"); len(q.users) != 1 || err != nil {
		t.Errorf("%d users after a question, %v", len(q.users), err)
	}
	store("a", "one", 10, false)
	store("a", "two", 20, false)
	q.forgetEvent("default", "two", "check")
	want("one", 10, 2)
	q.made("default", "a", "three") // no event of it is stored
	q.forget("default", "one")
	want("an entity without bytes", 0, 2)
	store("a", "three", 30, false)
	want("the same agent", 30, 2)
	q.forget("default", "three")
	want("none", 0, 1)

	store("", "api", 40, false)
	store("a", "api", 50, false)
	want("after a user of the API", 50, 2)
	store("a", "beside", 60, true)
	q.forget("default", "api")
	want("none again", 0, 1)
	if all := q.namespace("default"); all.bytes.Load() != 0 {
		t.Errorf("the namespace has %d bytes", all.bytes.Load())
	}
}

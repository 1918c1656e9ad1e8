package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestRequestsAreHeldBack plays a minute in which the backend cannot read an agent's results: the agent is asked for nothing, later
// requests take the place of earlier ones and are counted, and each check is asked for once when the results were read.
func TestRequestsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		agent, other := s.join(t, "behind", false, "linux"), s.join(t, "read", false, "linux")
		checks := []string{"cpu", "disk", "load", "memory"}
		second := func() {
			for _, c := range checks {
				s.Publish(newTick(c, time.Now(), "linux"))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		asked := func(p *peer) (names map[string]int) {
			names = map[string]int{}
			for _, a := range p.take() {
				names[checkOf(t, a)]++
			}
			return names
		}
		second()
		second()
		if got := asked(agent); len(got) != len(checks) || got["cpu"] < 1 {
			t.Fatalf("before the overload: %v", got)
		}
		asked(other)

		s.paced.Store(uint32(wire.PaceSlow))
		agent.busy.Store(true) // what it has sent has no room in the log
		asked(agent)
		for range 60 {
			second()
		}
		if got := asked(agent); len(got) != 0 {
			t.Errorf("an agent whose results were not read is asked for %v", got)
		}
		if got := asked(other); got["cpu"] < 59 {
			t.Errorf("an agent whose results were read is asked for %v", got)
		}
		if skipped := value(t, s.metrics.skipped); skipped < 4*58 || skipped > 4*60 {
			t.Errorf("%v requests were counted as skipped", skipped)
		}
		if n := len(agent.out.frames); n != len(checks) {
			t.Errorf("%d requests wait, of %d checks", n, len(checks))
		}

		// It is read: what waits leaves, each check once, with the newest tick.
		agent.busy.Store(false)
		s.paced.Store(uint32(wire.PaceGo))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := map[string]int64{}
		for _, a := range agent.take() {
			var q resource.CheckRequest
			if err := wire.Decode(a.payload, wire.Protobuf, &q); err != nil {
				t.Fatal(err)
			}
			if _, twice := got[q.Config.Metadata.Name]; twice {
				t.Errorf("%s is asked for twice", q.Config.Metadata.Name)
			}
			got[q.Config.Metadata.Name] = q.Issued
		}
		newest := time.Now().Add(-11 * time.Second).Unix()
		for _, c := range checks {
			if got[c] != newest {
				t.Errorf("%s: issued at %d, want %d", c, got[c], newest)
			}
		}
	})
}

// TestOverloadIsFair releases no more requests than fall due while the backend is overloaded, in the order in which their checks wait.
func TestOverloadIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		agent := s.join(t, "agent", false, "linux")
		s.paced.Store(uint32(wire.PaceSlow))
		agent.busy.Store(true)
		checks := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, c := range checks {
			s.Publish(newTick(c, time.Now(), "linux"))
		}
		time.Sleep(2 * time.Second)
		agent.busy.Store(false)
		for i := range checks {
			time.Sleep(time.Second)
			synctest.Wait()
			got := agent.take()
			if len(got) != 1 || checkOf(t, got[0]) != checks[i] {
				t.Fatalf("turn %d: %d requests", i, len(got))
			}
		}
	})
}

// TestDeadlinesWaitForTheBackend asks when deadlines count that pass under overload. What the backend has not read, or not asked for,
// is not the agent's failure; the silence of an agent that has nothing waiting here is.
func TestDeadlinesWaitForTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		i := s.opts.Intake
		i.agents.Store(s.registry)
		agent := s.join(t, "agent", false, "linux")
		time.Sleep(time.Hour)
		now := time.Now()
		ask := func(entity, class, check string) int64 {
			o := state.Overdue{Namespace: "default", Entity: entity, Check: check, Received: now.Add(-time.Minute).UnixMilli(), Due: now.UnixMilli()}
			again := i.waiting(&o, &resource.EntityConfig{EntityClass: class}, now)
			if again == 0 {
				return 0
			}
			return (again - now.UnixMilli()) / 1000
		}
		want := func(when, entity, class, check string, seconds int64) {
			t.Helper()
			if got := ask(entity, class, check); got != seconds {
				t.Errorf("%s: the deadline of %s/%s counts in %d s, want %d", when, entity, check, got, seconds)
			}
		}
		want("calm", "agent", resource.EntityAgentClass, state.KeepaliveCheck, 0)
		want("calm", "agent", resource.EntityAgentClass, "cpu", 0)
		want("calm", "proxy", resource.EntityProxyClass, "cpu", 0)

		i.askAll(false, now)
		want("overload", "dead", resource.EntityAgentClass, state.KeepaliveCheck, 0)
		want("overload", "agent", resource.EntityAgentClass, state.KeepaliveCheck, 0)
		want("overload", "proxy", resource.EntityProxyClass, "cpu", askAgain/1000)
		agent.busy.Store(true)
		want("unread", "agent", resource.EntityAgentClass, state.KeepaliveCheck, askAgain/1000)
		want("unread", "agent", resource.EntityAgentClass, "cpu", askAgain/1000)

		s.paced.Store(uint32(wire.PaceSlow))
		s.Publish(newTick("cpu", now, "linux"))
		time.Sleep(2 * time.Second)
		agent.busy.Store(false)
		now = time.Now()
		want("not asked for", "agent", resource.EntityAgentClass, state.KeepaliveCheck, 0)
		if got := ask("agent", resource.EntityAgentClass, "cpu"); got < 57 || got > 60 {
			t.Errorf("a result that was not asked for is due in %d s", got)
		}
		i.askAll(true, now)
		want("over", "proxy", resource.EntityProxyClass, "cpu", 60)
		time.Sleep(61 * time.Second)
		now = time.Now()
		want("long over", "proxy", resource.EntityProxyClass, "cpu", 0)
		want("long over", "agent", resource.EntityAgentClass, "cpu", 0)
	})
}

// TestRequestsForProxiesAreHeldBackApart keeps requests of one check for different entities apart.
func TestRequestsForProxiesAreHeldBackApart(t *testing.T) {
	s := bareServer(time.Second)
	agent := s.member("default", "agent", false, "linux")
	agent.out.hold.some = true
	for _, proxy := range []string{"a", "b", "a", "", ""} {
		q := newTick("ping", time.Now(), "linux")
		q.Request.Config.ProxyEntityName = proxy
		s.Publish(schedule.Request{Namespace: q.Namespace, Subscriptions: q.Subscriptions, Tick: q.Tick, Request: q.Request})
	}
	if n, skipped := len(agent.out.frames), value(t, s.metrics.skipped); n != 3 || skipped != 2 {
		t.Errorf("%d requests wait and %v were skipped, want 3 and 2", n, skipped)
	}
}

func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

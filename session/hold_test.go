package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestRequestsAreHeldBack plays a minute in which the backend cannot read an agent's results. The agent gets no
// requests, later requests replace earlier ones and are counted, and once the results are read each check is requested
// once.
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
		agent.busy.Store(true) // its data finds no room in the log
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

		// Its data is read: the waiting requests leave, each check once, with the newest tick.
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

// TestOverloadIsFair: while the backend is overloaded, no more requests leave than fall due, in the order of the
// queue.
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
			got := agent.take()
			if len(got) != 1 || checkOf(t, got[0]) != checks[i] {
				t.Fatalf("turn %d: %d requests", i, len(got))
			}
		}
	})
}

// TestWhyAnAgentIsSilent: deadlines do not blame an agent for data that the backend has not read, or for results it
// has not requested.
func TestWhyAnAgentIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		agent := s.join(t, "agent", false, "linux")
		time.Sleep(time.Hour)
		want := func(when string, excused bool, held time.Time) {
			t.Helper()
			var since int64
			if !held.IsZero() {
				since = held.UnixMilli()
			}
			r := s.registry
			if got := r.Excused("default", "agent"); got != excused {
				t.Errorf("%s: excused %v", when, got)
			}
			if got := r.HeldSince("default", "agent"); got < since-3000 || got > since {
				t.Errorf("%s: held since %s, want %s", when, time.UnixMilli(got), held)
			}
			if !r.Connected("default", "agent") || r.Connected("default", "dead") || r.Excused("default", "dead") ||
				r.HeldSince("default", "dead") != 0 {
				t.Errorf("%s: an agent is mistaken for another", when)
			}
		}
		want("calm", false, time.Time{})
		agent.busy.Store(true)
		want("unread", true, time.Time{})
		s.paced.Store(uint32(wire.PaceSlow))
		s.Publish(newTick("cpu", time.Now(), "linux"))
		time.Sleep(2 * time.Second)
		agent.busy.Store(false)
		want("not asked for", false, time.Now())
		s.paced.Store(uint32(wire.PaceGo))
		last := time.Now()
		time.Sleep(time.Minute)
		want("long over", false, last)
	})
}

// TestRequestsForProxiesAreHeldBackApart: requests of one check for different entities do not replace each other.
func TestRequestsForProxiesAreHeldBackApart(t *testing.T) {
	s := bareServer(time.Second)
	agent := s.member("default", "agent", false, "linux")
	agent.out.hold.some = true
	for _, proxy := range []string{"a", "b", "a", "", ""} {
		q := newTick("ping", time.Now(), "linux")
		q.Request.Config.ProxyEntityName = proxy
		s.Publish(schedule.Request{Namespace: q.Namespace, Subscriptions: q.Subscriptions, Due: q.Due, Request: q.Request})
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

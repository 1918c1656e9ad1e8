package intake

import (
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/state"
)

// oneAgent is Sessions with one agent, whose state a test sets.
type oneAgent struct {
	excused bool
	held    time.Time
}

func (a *oneAgent) Connected(_, agent string) bool { return agent == "agent" }
func (a *oneAgent) Excused(_, agent string) bool   { return agent == "agent" && a.excused }
func (a *oneAgent) HeldSince(_, agent string) int64 {
	if agent != "agent" || a.held.IsZero() {
		return 0
	}
	return a.held.UnixMilli()
}

// TestDeadlinesWaitForTheBackend: under overload, deadlines do not blame an agent for data that is unread or results
// that were not requested. They count for a silent agent whose data is all read.
func TestDeadlinesWaitForTheBackend(t *testing.T) {
	var i Intake
	var agent oneAgent
	i.SetSessions(&agent)
	now := time.UnixMilli(1_000_000_000_000)
	want := func(when, entity, class, check string, seconds int64) {
		t.Helper()
		o := state.Overdue{
			Namespace: "default", Entity: entity, Check: check, Received: now.Add(-time.Minute).UnixMilli(), Due: now.UnixMilli(),
		}
		got := i.waiting(&o, &resource.EntityConfig{EntityClass: class}, now)
		if got != 0 {
			got = (got - now.UnixMilli()) / 1000
		}
		if got != seconds {
			t.Errorf("%s: the deadline of %s/%s counts in %d s, want %d", when, entity, check, got, seconds)
		}
	}
	want("calm", "agent", resource.EntityAgentClass, state.KeepaliveCheck, 0)
	want("calm", "agent", resource.EntityAgentClass, "cpu", 0)
	want("calm", "proxy", resource.EntityProxyClass, "cpu", 0)

	i.SetAsking(false, now)
	want("overload", "dead", resource.EntityAgentClass, state.KeepaliveCheck, 0)
	want("overload", "agent", resource.EntityAgentClass, state.KeepaliveCheck, 0)
	want("overload", "proxy", resource.EntityProxyClass, "cpu", askAgain/1000)
	agent.excused = true
	want("unread", "agent", resource.EntityAgentClass, state.KeepaliveCheck, askAgain/1000)
	want("unread", "agent", resource.EntityAgentClass, "cpu", askAgain/1000)

	agent.excused, agent.held = false, now.Add(-2*time.Second)
	want("not asked for", "agent", resource.EntityAgentClass, state.KeepaliveCheck, 0)
	want("not asked for", "agent", resource.EntityAgentClass, "cpu", 58)
	agent.held = now.Add(time.Hour)
	want("not asked for, before the clock was set back", "agent", resource.EntityAgentClass, "cpu", 0)
	agent.held = now.Add(-2 * time.Second)
	i.SetAsking(true, now)
	want("over", "proxy", resource.EntityProxyClass, "cpu", 60)
	now = now.Add(61 * time.Second)
	want("long over", "proxy", resource.EntityProxyClass, "cpu", 0)
	want("long over", "agent", resource.EntityAgentClass, "cpu", 0)
}

func TestUnheard(t *testing.T) {
	var i Intake
	now := time.UnixMilli(1_000_000_000_000)
	if again := i.Unheard(120_000, now); again != 0 {
		t.Errorf("before anything happened: %d", again)
	}
	i.SetHearing(false, now)
	if again := i.Unheard(120_000, now.Add(time.Hour)); again != now.Add(time.Hour).UnixMilli()+askAgain {
		t.Errorf("while deaf: %d", again)
	}
	i.SetHearing(true, now)
	for after, want := range map[time.Duration]int64{
		0: now.UnixMilli() + 120_000, 119 * time.Second: now.UnixMilli() + 120_000, 120 * time.Second: 0,
	} {
		if again := i.Unheard(120_000, now.Add(after)); again != want {
			t.Errorf("after %s: %d, want %d", after, again, want)
		}
	}
}

func TestHeardFor(t *testing.T) {
	var i Intake
	now := time.UnixMilli(1_000_000_000_000)
	want := func(when string, after, want time.Duration) {
		t.Helper()
		if got := i.HeardFor(now.Add(after)); got != want {
			t.Errorf("%s: heard for %s, want %s", when, got, want)
		}
	}
	if got := i.HeardFor(now); got < 24*time.Hour {
		t.Errorf("before anything happened: %s", got)
	}
	i.SetHearing(false, now)
	want("deaf", time.Hour, 0)
	i.SetHearing(true, now)
	want("events arrive", time.Minute, time.Minute)
	i.SetAsking(false, now.Add(time.Minute))
	want("overloaded", 2*time.Minute, 0)
	i.SetAsking(true, now.Add(2*time.Minute))
	want("agents are asked again", 3*time.Minute, time.Minute)
	want("the clock was set back", -time.Hour, 0)
}

// TestClockSteps: after the wall clock was set, or after the process stood still, each deadline has to wait for a whole
// period.
func TestClockSteps(t *testing.T) {
	const begin = 1_000_000_000_000
	var i Intake
	var wall, mono time.Duration
	want := func(what string, wallMoves, monoMoves, since time.Duration) {
		t.Helper()
		wall, mono = wall+wallMoves, mono+monoMoves
		back := i.look(&moment{begin + wall.Milliseconds(), mono})
		if back != (wallMoves < 0) {
			t.Errorf("%s: the clock was set back: %v", what, back)
		}
		if asking := i.asking.Load(); asking != i.hearing.Load() {
			t.Errorf("%s: requests are sent since %d", what, asking-begin)
		}
		if got := time.Duration(i.hearing.Load()-begin) * time.Millisecond; got != since {
			t.Errorf("%s: events can arrive since %s, want %s", what, got, since)
		}
	}
	const s, h = time.Second, time.Hour
	i.SetHearing(true, time.UnixMilli(begin))
	i.SetAsking(true, time.UnixMilli(begin))
	want("first", 0, 0, 0)
	want("a moment later", s/4, s/4, 0)
	want("adjusted", s/4, s, 0)
	want("an hour on", h, s/4, h+s/2)
	want("a moment later", s/4, s/4, h+s/2)
	want("an hour back", -h, s/4, 3*s/4)
	want("stood still", 20*s, 20*s, 20*s+3*s/4)
	want("a moment later", s/4, s/4, 20*s+3*s/4)
	i.SetHearing(false, time.UnixMilli(begin))
	i.look(&moment{begin + wall.Milliseconds() + h.Milliseconds(), mono})
	if i.hearing.Load() != deaf {
		t.Error("a step of the clock has ended the time in which no event can arrive")
	}
}

func TestPeriodOf(t *testing.T) {
	f := func(check string, c *resource.Check, want int64) {
		t.Helper()
		o := state.Overdue{Check: check, Received: 1_000_000, Due: 5_000_000}
		if c != nil {
			o.Event = &resource.Event{Check: c}
		}
		if got := periodOf(&o); got != want {
			t.Errorf("%s %+v: the period is %d ms, want %d", check, c, got, want)
		}
	}
	f("cpu", nil, 4_000_000)
	f("cpu", &resource.Check{}, 4_000_000)
	f("cpu", &resource.Check{TTL: 60}, 60_000)
	f("cpu", &resource.Check{TTL: 100_000}, 4_000_000)
	f(state.KeepaliveCheck, &resource.Check{Timeout: 120}, 120_000)
	f(state.KeepaliveCheck, &resource.Check{Timeout: 120, TTL: 30}, 30_000)
	f(state.KeepaliveCheck, &resource.Check{}, 120_000)
}

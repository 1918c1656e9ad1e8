package session

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// member is a session without a connection: its frames stay in its queue.
func (s *Server) member(namespace, name string, lapwing bool, subscriptions ...string) *session {
	one := s.newSession(nil, namespace, name)
	one.encoding, one.lapwing = wire.Protobuf, lapwing
	s.registry.add(one)
	s.registry.subscribe(one, subscriptions)
	return one
}

// takeRequests returns how many requests wait for a session.
func (s *session) takeRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.out.frames)
	s.out = outgoing{}
	return n
}

func TestWhoIsAsked(t *testing.T) {
	s := bareServer(time.Second)
	all := map[string]*session{
		"linux":     s.member("default", "linux", false, "linux"),
		"both":      s.member("default", "both", false, "linux", "web"),
		"double":    s.member("default", "double", false, "linux", "linux"),
		"web":       s.member("default", "web", false, "web"),
		"none":      s.member("default", "none", false),
		"elsewhere": s.member("other", "elsewhere", false, "linux", "web"),
		"own":       s.member("default", "own", true, "web"),
		"left":      s.member("default", "left", false, "linux", "web"),
		"changed":   s.member("default", "changed", false, "linux"),
	}
	s.registry.remove(all["left"])
	s.registry.subscribe(all["left"], []string{"linux"}) // a change that came too late
	s.registry.subscribe(all["changed"], []string{"db"})
	if n := s.Sessions(); n != len(all)-1 {
		t.Errorf("%d sessions stay, want %d", n, len(all)-1)
	}
	ask := func(q schedule.Request, want ...string) {
		t.Helper()
		s.Publish(q)
		var got []string
		for name, one := range all {
			for range one.takeRequests() {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%v: asked %v, want %v", q.Subscriptions, got, want)
		}
	}
	now := time.Now()
	ask(newTick("c", now, "linux"), "both", "double", "linux")
	ask(newTick("c", now, "linux", "web"), "both", "double", "linux", "own", "web")
	ask(newTick("c", now, "db"), "changed")
	ask(newTick("c", now, "nobody"))
	ask(newTick("c", now))
	q := newTick("c", now, "linux", "web")
	q.Assigned = true
	ask(q, "both", "double", "linux", "web")

	for _, one := range all {
		s.registry.remove(one)
	}
	if r := s.registry; len(r.agents)+len(r.subscriptions)+len(r.assignments) != 0 {
		t.Errorf("the registry keeps %v %v %v", r.agents, r.subscriptions, r.assignments)
	}
}

// agents is an Agents.
type agents map[string][]string

func (a agents) Connected(agent resource.Name, subscriptions []string) { a[agent.Name] = subscriptions }
func (a agents) Gone(agent resource.Name)                              { delete(a, agent.Name) }

// TestAgents: with two sessions an agent has the subscriptions of the newer one, and it is gone when both have ended.
func TestAgents(t *testing.T) {
	s := bareServer(time.Second)
	known := agents{}
	s.registry.present = known
	want := func(subscriptions ...string) {
		t.Helper()
		if got, connected := known["a"]; !slices.Equal(got, subscriptions) || connected != (len(subscriptions) > 0) {
			t.Errorf("it has %v, connected %v, want %v", got, connected, subscriptions)
		}
	}
	first := s.newSession(nil, "default", "a")
	s.registry.add(first)
	want()
	s.registry.subscribe(first, []string{"linux"})
	want("linux")
	s.registry.subscribe(first, []string{"linux", "web"})
	want("linux", "web")
	second := s.newSession(nil, "default", "a")
	s.registry.add(second)
	want("linux", "web")
	s.registry.remove(second) // before it was configured
	want("linux", "web")
	second = s.member("default", "a", false, "db")
	want("db")
	s.registry.remove(first)
	want("db")
	s.registry.remove(second)
	want()
}

// TestAsk: a turn goes to one session of the agent, and is lost if it does not leave.
func TestAsk(t *testing.T) {
	s := bareServer(time.Second)
	one := s.member("default", "a", false, "linux")
	other := s.member("default", "b", false, "linux")
	lost := 0
	ask := func(agent, check string) bool {
		return s.Ask(resource.Name{Namespace: "default", Name: agent}, newTick(check, time.Now()).Request, time.Now(), func() { lost++ })
	}
	for range 2 {
		if !ask("a", "c") {
			t.Error("the agent takes no request")
		}
	}
	if len(one.out.frames) != 2 {
		t.Errorf("%d requests wait, want two", len(one.out.frames))
	}
	if ask("nobody", "c") {
		t.Error("an agent that is not there takes a request")
	}
	before := slices.Clone(one.out.frames[0].frame)
	for range 3 { // their buffers are used again, but not those of requests that wait
		if !ask("b", "another check") {
			t.Error("the agent takes no request")
		}
		var written batch
		other.mu.Lock()
		other.takeFrames(&written, heldNot)
		other.mu.Unlock()
		written.written()
	}
	if !bytes.Equal(one.out.frames[0].frame, before) {
		t.Error("a request has changed while it waits")
	}
	one.out.hold.some = true // the backend is overloaded: a newer request replaces one that waits
	if !ask("a", "c") || lost != 1 || len(one.out.frames) != 2 {
		t.Errorf("%d requests are lost and %d wait, want the one that was replaced, and two", lost, len(one.out.frames))
	}
	s.registry.remove(one)
	if lost != 3 {
		t.Errorf("%d requests are lost, want all", lost)
	}
	if ask("a", "c") || lost != 3 {
		t.Error("an agent that has gone takes a request")
	}
}

// planned is an agent's view of its schedule.
type planned struct {
	revision uint64
	checks   map[string]string // phase and command by name
}

// read takes the waiting frames and applies them as an agent does.
func (p *planned) read(t *testing.T, s *session) (messages int) {
	t.Helper()
	var b batch
	s.lockPlan(&b)
	s.take(&b, heldNot)
	s.mu.Unlock()
	for _, frame := range b.frames {
		typ, payload, err := wire.Split(frame)
		if err != nil || typ != wire.TypeSchedule {
			t.Fatalf("%s, %v", typ, err)
		}
		revision, replace, entries, err := wire.DecodeSchedule(payload)
		if err != nil {
			t.Fatal(err)
		}
		if p.revision++; revision != p.revision || revision == 1 && !replace {
			t.Fatalf("revision %d, replace %v, want %d", revision, replace, p.revision)
		}
		if replace {
			p.checks = map[string]string{}
		}
		for _, e := range entries {
			if e.Remove != "" {
				delete(p.checks, e.Remove)
				continue
			}
			var q resource.CheckRequest
			if err := wire.Decode(e.Request, wire.Protobuf, &q); err != nil {
				t.Fatal(err)
			}
			p.checks[q.Config.Metadata.Name] = fmt.Sprint(e.PhaseMillis, " ", q.Config.Command)
		}
		messages++
	}
	return messages
}

func assigned(check, command string, interval uint32, subscriptions ...string) schedule.Assignment {
	return schedule.Assignment{
		Namespace: "default", Check: check, Every: time.Duration(interval) * time.Second, Phase: 3 * time.Second,
		Request: &resource.CheckRequest{Config: &resource.CheckConfig{
			Metadata: resource.ObjectMeta{Namespace: "default", Name: check}, Command: command, Interval: interval, Subscriptions: subscriptions,
		}},
	}
}

// phase returns where in its interval a session's agent runs a check whose ticks have the given phase, in
// milliseconds.
func (s *session) phase(tick, every uint64) uint64 {
	return (tick + s.shift*1000%every + uint64(s.offset)) % every
}

func TestSchedules(t *testing.T) {
	s := bareServer(time.Second)
	s.Assign([]schedule.Assignment{assigned("cpu", "v1", 10, "linux"), assigned("http", "v1", 1, "web", "linux")})
	one := s.member("default", "a", true, "linux", "web")
	plain := s.member("default", "plain", false, "linux", "web")
	var agent planned
	want := func(step string, messages int, checks ...string) {
		t.Helper()
		if n := agent.read(t, one); n != messages {
			t.Errorf("%s: %d messages, want %d", step, n, messages)
		}
		var got []string
		for name, is := range agent.checks {
			got = append(got, name+" "+is)
		}
		if slices.Sort(got); !slices.Equal(got, checks) {
			t.Errorf("%s: %q, want %q", step, got, checks)
		}
	}
	inTen, inOne := one.phase(3000, 10_000), one.phase(0, 1000)
	cpu := func(v string) string { return fmt.Sprint("cpu ", inTen, " ", v) }
	http := func(v string) string { return fmt.Sprint("http ", inOne, " ", v) }
	want("at first", 1, cpu("v1"), http("v1"))
	want("nothing new", 0, cpu("v1"), http("v1"))
	s.Assign([]schedule.Assignment{assigned("cpu", "v2", 10, "linux")})
	s.Assign([]schedule.Assignment{assigned("cpu", "v3", 10, "linux"), assigned("http", "v2", 1, "web")})
	want("changes together", 1, cpu("v3"), http("v2"))
	s.Assign([]schedule.Assignment{{Namespace: "default", Check: "cpu"}, {Namespace: "other", Check: "http"}})
	want("removed", 1, http("v2"))
	s.Assign([]schedule.Assignment{assigned("http", "v3", 1, "db")})
	want("for others", 1)
	s.Assign([]schedule.Assignment{assigned("http", "v4", 1, "db")})
	want("of others", 0)
	s.registry.subscribe(one, []string{"db"})
	want("other subscriptions", 1, http("v4"))
	s.registry.subscribe(one, []string{"db"})
	want("the same subscriptions", 0, http("v4"))
	many := []schedule.Assignment{}
	for i := range 10 * maxChanges {
		many = append(many, assigned(fmt.Sprint("many-", i), "v1", 10, "db"))
	}
	s.Assign(many)
	if n := agent.read(t, one); n != 1 || len(agent.checks) != 1+10*maxChanges {
		t.Errorf("%d checks in %d messages", len(agent.checks), n)
	}
	if n := plain.takeRequests(); n != 0 || plain.plan.revision != 0 {
		t.Errorf("an agent without schedule got %d frames", n)
	}
	zoned := assigned("daily", "v1", 0, "cron")
	zoned.Request.Config.Cron, zoned.Every, zoned.Phase = "TZ=UTC 0 4 * * *", 0, 0
	s.Assign([]schedule.Assignment{zoned})
	s.registry.subscribe(one, []string{"cron"})
	want("a cron", 1, fmt.Sprint("daily ", one.offset, " v1"))
}

// TestSchedulesStayTrue changes checks and subscriptions at random. However changes are combined into messages, each
// agent has exactly the checks of its subscriptions.
func TestSchedulesStayTrue(t *testing.T) {
	s := bareServer(10 * time.Second)
	subs := strings.Fields("a b c d e")
	some := func() []string {
		picked := []string{}
		for _, sub := range subs {
			if rand.IntN(3) == 0 {
				picked = append(picked, sub)
			}
		}
		return picked
	}
	type agent struct {
		*session
		planned
	}
	var agents []*agent
	for i := range 8 {
		agents = append(agents, &agent{session: s.member("default", fmt.Sprint("agent-", i), true, some()...)})
	}
	checks := map[string]schedule.Assignment{}
	for step := range 3000 {
		switch name := fmt.Sprint("check-", rand.IntN(20)); rand.IntN(4) {
		case 0:
			a := agents[rand.IntN(len(agents))]
			s.registry.subscribe(a.session, some())
		case 1:
			delete(checks, name)
			s.Assign([]schedule.Assignment{{Namespace: "default", Check: name}})
		default:
			checks[name] = assigned(name, fmt.Sprint("v", step), 10, some()...)
			s.Assign([]schedule.Assignment{checks[name]})
		}
		if rand.IntN(5) != 0 {
			continue
		}
		a := agents[rand.IntN(len(agents))]
		a.read(t, a.session)
		want := map[string]string{}
		for name, c := range checks {
			config := c.Request.Config
			if slices.ContainsFunc(config.Subscriptions, func(sub string) bool { return slices.Contains(a.subscriptions, sub) }) {
				want[name] = fmt.Sprint(a.phase(3000, 10_000), " ", config.Command)
			}
		}
		if !maps.Equal(a.checks, want) && len(want)+len(a.checks) > 0 {
			t.Fatalf("step %d: %s of %v has %v, want %v", step, a.name, a.subscriptions, a.checks, want)
		}
	}
}

// TestOffsetsLast: an agent's moment depends on its names alone. If it changed with the process, its checks would
// jump.
func TestOffsetsLast(t *testing.T) {
	for spread, want := range map[time.Duration][2]int64{time.Second: {623, 880}, 10 * time.Second: {2623, 880}, 0: {0, 0}} {
		s := bareServer(spread)
		if got := [2]int64{s.newSession(nil, "default", "web1").offset, s.newSession(nil, "other", "web1").offset}; got != want {
			t.Errorf("spread %s: offsets %v, want %v", spread, got, want)
		}
	}
}

// TestSubscriptionsWithoutAgent: a subscription to which a check is assigned still counts as without an agent.
func TestSubscriptionsWithoutAgent(t *testing.T) {
	s := startBare(t, time.Second)
	s.join(t, "stock", false, "linux", "web")
	s.join(t, "own", true, "db")
	s.registry.assign(resource.Name{Namespace: "default", Name: "c"}, &assignment{subscriptions: []string{"nowhere"}})
	got := s.WithoutAgent("default", []string{"linux", "nowhere", "db", "never"})
	if !slices.Equal(got, []string{"nowhere", "never"}) {
		t.Errorf("got %v", got)
	}
	if got := s.WithoutAgent("other", []string{"linux"}); !slices.Equal(got, []string{"linux"}) {
		t.Errorf("in another namespace: %v", got)
	}
}

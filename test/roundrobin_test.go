package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/resource"
)

// runFile is a file in which the commands of a round-robin check write who ran it, a line for each run.
type runFile struct {
	t    testing.TB
	path string
}

func newRunFile(t testing.TB) runFile { return runFile{t, filepath.Join(t.TempDir(), "runs")} }

// check is a round-robin check of the subscription linux that writes into the file, and then does something more.
func (r runFile) check(name, then string) *resource.CheckConfig {
	return &resource.CheckConfig{
		Metadata: meta(name), Command: "echo {{ .name }} >> " + r.path + "; " + then, Interval: 1, Publish: true, RoundRobin: true,
		Subscriptions: []string{"linux"},
	}
}

// agents returns the agents that ran the check, in the order of the runs.
func (r runFile) agents() []string {
	text, err := os.ReadFile(r.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// count returns how many runs each agent had.
func (r runFile) count() map[string]int {
	n := map[string]int{}
	for _, agent := range r.agents() {
		n[agent]++
	}
	return n
}

// groupOf returns the only group of a check, as the API shows it.
func groupOf(t testing.TB, c *client.Client, check string) (g client.GroupDetail) {
	t.Helper()
	groups, err := c.QueueGroups(t.Context(), "default", check)
	if errors.Is(err, client.ErrNotFound) {
		return g
	}
	if err != nil || len(groups) != 1 {
		t.Fatalf("the groups of %s are %+v, %v", check, groups, err)
	}
	return groups[0]
}

// TestRoundRobin has three agents share a check.
func TestRoundRobin(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		startAgent(t, b, agent.Options{Name: name, Subscriptions: []string{"linux"}})
	}
	t.Run("in turn", func(t *testing.T) {
		r := newRunFile(t)
		eventually(t, time.Minute, "all agents are there", func() bool { return b.Counter(t, "lapwing_agent_sessions") == 3 })
		define(t, b.Client, client.Checks, "turns", r.check("turns", "true"))
		eventually(t, 2*time.Minute, "each agent has had three turns", func() bool {
			n := r.count()
			return min(n["a"], n["b"], n["c"]) >= 3
		})
		g := groupOf(t, b.Client, "turns")
		if g.Agents != 3 || !g.Acts || g.Given < 9 || g.Answered+uint64(g.Open)+g.Expired < g.Given {
			t.Errorf("the group is %+v", g)
		}
		order := r.agents()
		for i := 3; i < len(order) && g.Again == 0; i++ { // a turn that was given again comes out of its order
			if order[i] != order[i-3] {
				t.Errorf("the agents ran it in the order %v", order)
				break
			}
		}
		if g.Fairness.Most-g.Fairness.Least > 1+int(g.Again) {
			t.Errorf("the turns are spread as %+v", g.Fairness)
		}
		// The turn is in the event, and in nothing else that the user sees.
		ev := eventOf(t, b, order[0], "turns")
		if turn := ev.Check.Metadata.Annotations[resource.TurnAnnotation]; !strings.Contains(turn, " linux ") {
			t.Errorf("the event's turn is %q", turn)
		}
	})
	t.Run("on request", func(t *testing.T) {
		r := newRunFile(t)
		c := r.check("asked", "true")
		c.Publish = false
		define(t, b.Client, client.Checks, "asked", c)
		execute := func(body any, want int) {
			t.Helper()
			before := len(r.agents())
			if err := b.Client.Do(t.Context(), http.MethodPost, "/api/core/v2/namespaces/default/checks/asked/execute", body, nil); err != nil {
				t.Fatal(err)
			}
			eventually(t, time.Minute, "the agents have run it", func() bool { return len(r.agents()) >= before+want })
			g := groupOf(t, b.Client, "asked")
			if n := len(r.agents()) - before; n != want && g.Again == 0 {
				t.Errorf("%d agents ran it, want %d", n, want)
			}
		}
		execute(map[string]any{}, 1)
		eventually(t, time.Minute, "another second", func() bool { return time.Now().Unix() > r.last(t)+1 }) // an agent runs a check once a second
		execute(map[string]any{"all": true}, 3)
	})
	t.Run("busy", func(t *testing.T) {
		r := newRunFile(t)
		define(t, b.Client, client.Checks, "busy", r.check("busy", "[ {{ .name }} != b ] || sleep 3600"))
		eventually(t, 2*time.Minute, "the others run it, and b declines its turns", func() bool {
			n := r.count()
			return n["b"] == 1 && min(n["a"], n["c"]) >= 4 && groupOf(t, b.Client, "busy").Declined >= 2
		})
		g := groupOf(t, b.Client, "busy")
		running := slices.ContainsFunc(g.Turns, func(t client.OpenTurn) bool { return t.Agent == "b" && t.Running })
		if !running || g.Duplicates > 0 || r.count()["b"] != 1 {
			t.Errorf("the group is %+v; ran: %v", g, r.count())
		}
	})
	t.Run("two agents, and one refuses", func(t *testing.T) {
		for _, name := range []string{"d", "e"} {
			startAgent(t, b, agent.Options{Name: name, Subscriptions: []string{"pair"}})
		}
		eventually(t, time.Minute, "both are there", func() bool { return b.Counter(t, "lapwing_agent_sessions") == 5 })
		r := newRunFile(t)
		c := r.check("pair", "[ {{ .name }} != d ] || sleep 3600")
		c.Subscriptions = []string{"pair"}
		define(t, b.Client, client.Checks, "pair", c)
		eventually(t, 2*time.Minute, "d declines its turns, and e has them all", func() bool {
			if r.count()["e"] < 6 {
				return false
			}
			g := groupOf(t, b.Client, "pair")
			return g.Declined >= 3 && g.Answered >= 6
		})
		if g := groupOf(t, b.Client, "pair"); g.Duplicates > 0 || g.Again < g.Declined-1 || r.count()["d"] != 1 {
			t.Errorf("the group is %+v; ran: %v", g, r.count())
		}
	})
}

// last returns when the file was last written to, in Unix seconds.
func (r runFile) last(t testing.TB) int64 {
	info, err := os.Stat(r.path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime().Unix()
}

// TestRoundRobinOutlivesMembers: agents at three members share checks, and the member that gives the turns dies. Each
// tick is run, and hardly any twice.
func TestRoundRobinOutlivesMembers(t *testing.T) {
	all := newMembers(t, 3, "--event-log-partitions", "2")
	all.start()
	var urls []string
	for _, p := range all {
		urls = append(urls, "ws://127.0.0.1:"+p.agent)
	}
	for i := range 6 {
		a, err := agent.New(agent.Options{
			Name: fmt.Sprint("host-", i), Subscriptions: []string{"linux"}, BackendURLs: urls,
			RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Stop() })
	}
	r := newRunFile(t)
	client0 := all[0].client()
	define(t, client0, client.Checks, "turns", r.check("turns", "true"))
	eventually(t, time.Minute, "all agents have had a turn", func() bool { return len(r.count()) == 6 })
	owner := -1
	for i, p := range all {
		if p.gauge("lapwing_queue_groups", "") > 0 {
			owner = i
		}
	}
	if owner < 0 {
		t.Fatal("no member gives the turns")
	}
	other := all[(owner+1)%3].client()
	before := groupOf(t, other, "turns")
	all[owner].kill(syscall.SIGKILL)
	ran := len(r.agents())
	eventually(t, 2*time.Minute, "another member gives the turns", func() bool {
		g := groupOf(t, other, "turns")
		return g.Acts && len(r.agents()) >= ran+12 && g.Given > before.Given
	})
	// All ticks were given to an agent, those while there was no owner too: the survivors know all of them.
	all[owner].start()
	eventually(t, time.Minute, "nothing is owed but the last ticks", func() bool {
		g := groupOf(t, other, "turns")
		return g.Acts && g.Expired == 0 && g.Answered >= g.Given-2 && g.Oldest < 5
	})
	g := groupOf(t, other, "turns")
	t.Logf("%+v; %d runs", g, len(r.agents()))
}

// TestRoundRobinOutlivesTheBackend: a tick that falls due while the only backend is down is run when it is back, once, and
// one that was run before is not run again.
func TestRoundRobinOutlivesTheBackend(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start()
	c := p.client()
	for _, name := range []string{"a", "b"} {
		a, err := agent.New(agent.Options{
			Name: name, Subscriptions: []string{"linux"}, BackendURLs: []string{"ws://127.0.0.1:" + p.agent},
			RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Stop() })
	}
	const every = 40 // and so long is the deadline
	r := newRunFile(t)
	define(t, c, client.Checks, "turns", r.turnCheck("turns", every, "true"))
	eventually(t, time.Minute, "a tick is run", func() bool { return len(r.agents()) > 0 })
	first, err := strconv.ParseInt(r.agents()[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "its result is known", func() bool { return groupOf(t, c, "turns").Answered > 0 })
	p.kill(syscall.SIGKILL)
	eventually(t, time.Minute, "the next tick has passed", func() bool { return time.Now().Unix() > first+every })
	p.start()
	want := []string{fmt.Sprint(first), fmt.Sprint(first + every)}
	eventually(t, time.Minute, "the tick is run", func() bool { return len(r.agents()) >= len(want) })
	if got := r.agents(); !slices.Equal(got[:2], want) {
		t.Errorf("ticks were run in the order %v, want %v", got, want)
	}
}

// turnCheck is a round-robin check whose commands write the second of the tick into the file, and then do something more.
func (r runFile) turnCheck(name string, interval uint32, then string) *resource.CheckConfig {
	c := r.check(name, then)
	c.Interval, c.Stdin = interval, true
	c.Command = `grep -o 'lapwing.io/turn": *"[0-9]*' | grep -o '[0-9]*$' >> ` + r.path + "; " + then
	return c
}

// ticks returns how often each tick was run.
func (r runFile) ticks() map[int64]int {
	n := map[int64]int{}
	for _, text := range r.agents() {
		tick, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		n[tick]++
	}
	return n
}

// complete checks that each tick between the first and the last was run, and returns how many runs were too many.
func (r runFile) complete(interval int64) (twice int) {
	r.t.Helper()
	ticks := r.ticks()
	all := slices.Sorted(maps.Keys(ticks))
	for i, tick := range all {
		twice += ticks[tick] - 1
		if i > 0 && tick != all[i-1]+interval {
			r.t.Errorf("no agent ran the ticks between %d and %d", all[i-1], tick)
		}
	}
	return twice
}

// relay passes connections on to an address, until they are cut.
type relay struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				_ = here.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, here, there)
			r.mu.Unlock()
			running.Go(func() { _, _ = io.Copy(here, there); _ = here.Close() })
			running.Go(func() { _, _ = io.Copy(there, here); _ = there.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		running.Wait()
	})
	return r
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// TestRoundRobinWhileAgentsReconnect: half of the agents lose their connection at each tick.
func TestRoundRobinWhileAgentsReconnect(t *testing.T) {
	t.Parallel()
	b := testbackend.Start(t, nil)
	far := newRelay(t, b.AgentAddr().String())
	for i := range 6 {
		o := agent.Options{Name: fmt.Sprint("host-", i), Subscriptions: []string{"linux"}, RetryMin: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond}
		if i%2 == 0 {
			o.BackendURLs = []string{"ws://" + far.Addr().String()}
		}
		startAgent(t, b, o)
	}
	eventually(t, time.Minute, "all agents are there", func() bool { return b.Counter(t, "lapwing_agent_sessions") == 6 })
	r := newRunFile(t)
	define(t, b.Client, client.Checks, "turns", r.turnCheck("turns", 1, "true"))
	for runs := range 20 {
		eventually(t, time.Minute, "a further tick is run", func() bool { return len(r.agents()) > runs })
		far.cut()
	}
	var g client.GroupDetail
	eventually(t, time.Minute, "no turn is open but the newest", func() bool {
		g = groupOf(t, b.Client, "turns")
		return g.Open <= 1
	})
	twice := r.complete(1)
	if g.Expired > 0 || twice > int(g.Again) {
		t.Errorf("%d runs were too many; the group is %+v", twice, g)
	}
}

// TestRoundRobinOwnerDiesDuringARun: the member that gave a turn dies before its result comes. It is run once.
func TestRoundRobinOwnerDiesDuringARun(t *testing.T) {
	t.Parallel()
	const interval = 5
	all := newMembers(t, 3, "--event-log-partitions", "1")
	all.start()
	r := newRunFile(t)
	check := r.turnCheck("turns", interval, "sleep 2")
	check.Timeout = 60 // so long is the time for an answer
	define(t, all[0].client(), client.Checks, "turns", check)
	owner := -1
	eventually(t, time.Minute, "a member gives the turns", func() bool {
		owner = slices.IndexFunc(all, func(p *process) bool { return p.gauge("lapwing_queue_groups", "") > 0 })
		return owner >= 0
	})
	others := slices.Delete(slices.Clone(all), owner, owner+1)
	for i := range 4 {
		a, err := agent.New(agent.Options{
			Name: fmt.Sprint("host-", i), Subscriptions: []string{"linux"},
			BackendURLs: []string{"ws://127.0.0.1:" + others[i%2].agent},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Stop() })
	}
	eventually(t, 2*time.Minute, "two ticks are run", func() bool { return len(r.ticks()) >= 2 })
	begun := len(r.ticks())
	eventually(t, time.Minute, "a further run has begun", func() bool { return len(r.ticks()) > begun })
	all[owner].kill(syscall.SIGKILL)
	var g client.GroupDetail
	c := others[0].client()
	eventually(t, 2*time.Minute, "another member gives the turns, and four more are done", func() bool {
		g = groupOf(t, c, "turns")
		return g.Acts && len(r.ticks()) >= begun+5 && g.Open <= 1
	})
	if twice := r.complete(interval); g.Expired > 0 || twice > int(g.Again) {
		t.Errorf("%d runs were too many; the group is %+v", twice, g)
	}
}

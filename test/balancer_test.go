package test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/agent"
	"github.com/lapwing-monitoring/lapwing/client/load"
	"github.com/lapwing-monitoring/lapwing/internal/testbackend"
	"github.com/lapwing-monitoring/lapwing/session"
)

// threeBackends are backends with logs of their own that know each other as members. One can be stopped and started.
type threeBackends struct {
	t     *testing.T
	names bool // agents are told where the members are
	dirs  [3]string
	ports [3]int

	mu     sync.Mutex // guards the fields below
	up     [3]*testbackend.Backend
	starts [3]int
}

func startThree(t *testing.T, names bool) *threeBackends {
	t.Helper()
	c := &threeBackends{t: t, names: names}
	for i := range c.up {
		c.dirs[i] = t.TempDir()
		c.start(i)
		c.ports[i] = c.up[i].AgentAddr().(*net.TCPAddr).Port
	}
	return c
}

func (c *threeBackends) start(i int) {
	c.t.Helper()
	b := testbackend.Start(c.t, func(o *testbackend.Options) {
		o.StateDir, o.AgentPort = c.dirs[i], c.ports[i]
		o.Session.Members = func() []session.Member { return c.members(i) }
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up[i] = b
	c.starts[i]++
}

func (c *threeBackends) stop(i int) {
	c.t.Helper()
	c.mu.Lock()
	b := c.up[i]
	c.up[i] = nil
	c.mu.Unlock()
	if err := b.Stop(context.Background()); err != nil {
		c.t.Error(err)
	}
}

// members is what a backend knows of all.
func (c *threeBackends) members(self int) (all []session.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range c.up {
		if b == nil {
			continue
		}
		m := session.Member{ID: fmt.Sprint(i), Life: fmt.Sprint(c.starts[i]), Sessions: sessionsOf(c.t, b), Self: i == self}
		if c.names {
			m.URL = b.URL()
		}
		all = append(all, m)
	}
	return all
}

func sessionsOf(t *testing.T, b *testbackend.Backend) int {
	return int(b.Counter(t, "lapwing_agent_sessions"))
}

// even reports whether each backend that is up has its share of the agents, give or take a tenth.
func (c *threeBackends) even(agents int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var counts []int
	sum := 0
	for _, b := range c.up {
		if b != nil {
			n := sessionsOf(c.t, b)
			counts = append(counts, n)
			sum += n
		}
	}
	if sum != agents {
		return false
	}
	share := float64(agents) / float64(len(counts))
	for _, n := range counts {
		if float64(n) < 0.9*share || float64(n) > 1.1*share {
			return false
		}
	}
	return true
}

// startHAProxy runs a load balancer in front of the backends and returns the URL for agents.
func startHAProxy(t *testing.T, c *threeBackends, algorithm string) (url string) {
	t.Helper()
	path := findProgram(t, "haproxy", "/usr/sbin/haproxy")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var config strings.Builder
	config.WriteString(`
global
  maxconn 1000
defaults
  maxconn 1000
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend agents
  bind fd@3
  default_backend members
backend members
  balance ` + algorithm + `
  option httpchk GET /ready
  option redispatch
  default-server check inter 200ms fall 2 rise 2
`)
	for i, port := range c.ports {
		fmt.Fprintf(&config, "  server member-%d 127.0.0.1:%d\n", i, port)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "-db", "-f", file)
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy's log:\n%s", tailOf(log.Bytes(), 4000))
		}
	})
	return "ws://127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// findProgram returns a server of another project, and leaves the test out if it is not installed.
func findProgram(t *testing.T, name, usual string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if _, err := os.Stat(usual); err != nil {
		t.Skipf("%s is not installed: apt-get install %s", name, name)
	}
	return usual
}

// startFleet runs agents that are configured with some URLs, the first of them lapwing's, the rest Sensu's.
func startFleet(t *testing.T, lapwing, sensu int, urls ...string) (all []*agent.Transport) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i := range lapwing + sensu {
		one, err := agent.NewTransport(agent.TransportOptions{
			Name: fmt.Sprintf("agent-%02d", i), BackendURLs: urls,
			User: testbackend.AgentUser, Password: testbackend.AgentPassword,
			RetryMin: 100 * time.Millisecond, RetryMax: time.Second, SensuOnly: i >= lapwing,
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { one.Run(ctx) })
		all = append(all, one)
	}
	return all
}

// evenTime bounds how long tests wait until backends are even. A session that joined after its backend knew the members
// stays for three minutes, and agents move once a minute at most.
const evenTime = 5 * time.Minute

// TestRealLoadBalancer stops and starts one of three backends. Afterwards each has its share of the agents again,
// whether a balancer is in between or not, and whether agents are told where the members are or not.
func TestRealLoadBalancer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, algorithm string // without a balancer if empty
		names           bool
		lapwing, sensu  int
	}{
		{"without a balancer", "", true, 40, 20},
		{"in turn", "roundrobin", true, 30, 30},
		{"least connections, members not named", "leastconn", false, 30, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const agents = 60
			c := startThree(t, tt.names)
			urls := []string{c.up[0].URL(), c.up[1].URL(), c.up[2].URL()}
			if tt.algorithm != "" {
				urls = []string{startHAProxy(t, c, tt.algorithm)}
			}
			fleet := startFleet(t, tt.lapwing, tt.sensu, urls...)
			eventually(t, evenTime, "all are even", func() bool { return c.even(agents) })
			c.stop(0)
			eventually(t, evenTime, "two backends have all agents", func() bool { return c.even(agents) })
			c.start(0)
			eventually(t, evenTime, "three backends have all agents", func() bool { return c.even(agents) })
			for i, one := range fleet {
				one.Send(testbackend.Event(fmt.Sprintf("agent-%02d", i), "last", 0, time.Now().Unix()))
			}
			eventually(t, time.Minute, "all events are delivered", func() bool {
				for _, one := range fleet {
					if one.Buffered() > 0 {
						return false
					}
				}
				return true
			})
		})
	}
}

// TestFleetMoves: the load tool's agents follow the members as lapwing's agents do.
func TestFleetMoves(t *testing.T) {
	t.Parallel()
	const agents = 60
	c := startThree(t, true)
	c.stop(2)
	fleet, err := load.NewFleet(load.FleetOptions{
		Run: "moves", Backends: []string{c.up[0].URL(), c.up[1].URL()}, Namespace: "default",
		BaseName: "load", Count: agents, User: testbackend.AgentUser, Password: testbackend.AgentPassword, Protocol: load.ProtocolLapwing,
		KeepaliveInterval: time.Second, KeepaliveTimeout: time.Hour,
		RetryMin: 50 * time.Millisecond, RetryMax: time.Second, HandshakeTimeout: time.Minute,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Stop() })
	even := func() bool { return c.even(agents) }
	eventually(t, evenTime, "two backends have all agents", even)
	c.start(2)
	eventually(t, evenTime, "the third backend has its share", even)
	c.stop(0)
	eventually(t, evenTime, "the two others have all agents", even)
	c.start(0)
	eventually(t, evenTime, "three backends have all agents", even)
	if n := fleet.Snapshot().Moves; n < agents/2 {
		t.Errorf("%d moves", n)
	}
}

package session

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// overTCP returns a session of a bare server over a socket, and the agent's end.
func overTCP(t *testing.T, s *Server, name string) (*session, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	one := s.newSession(wire.NewServerConn(near, nil, 0), "default", name)
	if !s.registry.add(one) {
		t.Fatal("the server is stopping")
	}
	t.Cleanup(func() {
		far.Close()
		one.close()
	})
	return one, far.(*net.TCPConn)
}

// until polls until ok, for states that the system does not signal.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// TestWaitsEnd: a session's message waits as long as its agent is there and a minute after the agent has hung up, and
// stops at once when the connection breaks.
func TestWaitsEnd(t *testing.T) {
	s := bareServer(time.Second)
	there, _ := overTCP(t, s, "there")
	hungUp, far := overTCP(t, s, "hung-up")
	broken, away := overTCP(t, s, "broken")
	ended := map[*session]context.Context{}
	for _, one := range []*session{there, hungUp, broken} {
		ctx, end := s.waits.begin(t.Context(), one)
		defer end()
		ended[one] = ctx
	}
	if err := far.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	until(t, "one has hung up", func() bool { return hungUp.conn.Peer() == wire.PeerHungUp })
	if err := away.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	away.Close()
	until(t, "one has broken off", func() bool { return broken.conn.Peer() == wire.PeerGone })
	want := func(when time.Duration, gone ...*session) {
		t.Helper()
		for one, ctx := range ended {
			is := false
			for _, g := range gone {
				is = is || g == one
			}
			if errors.Is(context.Cause(ctx), errPeerGone) != is {
				t.Errorf("after %s the wait of %s has ended: %v", when, one.name, !is)
			}
		}
	}
	begin := time.Now()
	s.waits.look(begin)
	want(0, broken)
	s.waits.look(begin.Add(wire.HungUpPatience - 1))
	want(wire.HungUpPatience-1, broken)
	s.waits.look(begin.Add(wire.HungUpPatience))
	want(wire.HungUpPatience, broken, hungUp)
}

// TestDeadHostIsNotExcused: unread data excuses an agent's silence only while its host is alive, whether the backend
// is overloaded or a quota delays the agent.
func TestDeadHostIsNotExcused(t *testing.T) {
	s := bareServer(time.Second)
	s.opts.Intake = bareIntake(t, intake.Quotas{AgentEvents: 10})
	excused := func() bool { return s.registry.Excused("default", "agent") }
	for _, over := range []bool{false, true} {
		agent, far := overTCP(t, s, "agent")
		agent.meter = s.opts.Intake.Meter("default", "agent")
		if over {
			for range 100 {
				agent.meter.Spend()
			}
		}
		if excused() {
			t.Error("an agent is excused of which everything was read")
		}
		agent.busy.Store(true)
		if !excused() {
			t.Errorf("over its quota %v: an agent is not excused whose host is there", over)
		}
		far.Close()
		until(t, "the host has gone", func() bool { return agent.conn.Peer() != wire.PeerThere })
		if excused() {
			t.Errorf("over its quota %v: an agent is excused whose host has gone", over)
		}
		s.registry.remove(agent)
	}
}

// TestWaitingAgentsArePinged: a lapwing agent whose message has to wait hears the backend, unless its pace is slowed
// down. Otherwise it would go to another backend.
func TestWaitingAgentsArePinged(t *testing.T) {
	s := bareServer(time.Second)
	begin := time.Now()
	heard := func(one *session, far *net.TCPConn, after time.Duration) string {
		t.Helper()
		ctx, end := s.waits.begin(t.Context(), one)
		defer end()
		s.waits.look(begin.Add(after))
		s.running.Wait()
		if ctx.Err() != nil {
			t.Errorf("the wait of %s has ended", one.name)
		}
		if err := one.conn.Write([]byte("x")); err != nil { // so that there is something to read
			t.Fatal(err)
		}
		b := make([]byte, 10)
		n, err := far.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	const ping, message = "\x89\x00", "\x82\x01x"
	lapwing, far := overTCP(t, s, "lapwing")
	lapwing.lapwing = true
	if got := heard(lapwing, far, pingWaiting/2); got != message {
		t.Errorf("after a short wait the agent got %q", got)
	}
	if got := heard(lapwing, far, time.Minute); got != ping+message {
		t.Errorf("after a long wait the agent got %q", got)
	}
	s.paced.Store(uint32(wire.PaceSlow))
	if got := heard(lapwing, far, time.Minute); got != message {
		t.Errorf("at the slow pace the agent got %q", got)
	}
	s.paced.Store(uint32(wire.PaceGo))
	sensu, far := overTCP(t, s, "sensu")
	if got := heard(sensu, far, time.Minute); got != message {
		t.Errorf("a Sensu agent got %q", got)
	}
}

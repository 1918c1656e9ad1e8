package session

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestSilentAgents: an agent that answers pings may stay silent for ever. One that answers nothing is closed.
func TestSilentAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		read := func(one *session) (ended chan struct{}) {
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				for {
					if _, _, err := one.conn.Next(); err != nil {
						return
					}
				}
			}()
			return ended
		}
		answers := s.join(t, "answers", false)
		alive := read(answers.session)
		near, far := net.Pipe()
		silent := s.newSession(wire.NewServerConn(near, nil, 0), "default", "silent")
		if !s.registry.add(silent) {
			t.Fatal("the server is stopping")
		}
		go func() { _, _ = io.Copy(io.Discard, far) }()
		dead := read(silent)
		// This agent's message waits for room in the log.
		behind := s.join(t, "behind", false)
		unread := read(behind.session)
		behind.conn.Heard()
		behind.busy.Store(true)
		ended := func(c chan struct{}) bool {
			synctest.Wait()
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		for look := range 3 * quietLooks {
			s.sweepIdle()
			if got, want := ended(dead), look >= quietLooks-1; got != want {
				t.Fatalf("after %d looks the silent one has ended: %v", look+1, got)
			}
		}
		if ended(alive) {
			t.Error("an agent that answers was closed")
		}
		if ended(unread) || behind.quiet != 0 {
			t.Error("an agent was closed whose messages were not read")
		}
		far.Close()
	})
}

// TestRelieve: connections that wait for room are closed only when the system has no memory for sockets left.
func TestRelieve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startBare(t, time.Second)
		s.partials = wire.NewPartials(1<<20, time.Hour, s.slowMessage)
		full := false
		s.socketsFull = func() bool { return full }
		var ended []chan struct{}
		for range 3 {
			near, far := net.Pipe()
			conn := wire.NewServerConn(near, nil, 4<<20)
			conn.Watch(s.partials)
			done := make(chan struct{})
			ended = append(ended, done)
			go func() {
				defer close(done)
				_, _ = conn.Read()
				conn.Done()
			}()
			go func() {
				frame := ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame(make([]byte, 600<<10))))
				_, _ = far.Write(frame[:len(frame)-1])
			}()
			t.Cleanup(func() { conn.Close(wire.CloseGoingAway, "") })
		}
		synctest.Wait()
		if n := s.partials.Use().Stopped; n == 0 {
			t.Fatal("no connection waits")
		}
		closed := func() (n int) {
			synctest.Wait()
			for _, done := range ended {
				select {
				case <-done:
					n++
				default:
				}
			}
			return n
		}
		if s.relieve(); closed() != 0 {
			t.Error("a connection was closed although the system has memory")
		}
		full = true
		if s.relieve(); closed() != 1 {
			t.Errorf("%d connections were closed, want one", closed())
		}
		if got := testutil.ToFloat64(s.metrics.relieved); got != 1 {
			t.Errorf("%v are counted", got)
		}
	})
}

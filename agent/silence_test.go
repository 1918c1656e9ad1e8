package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestBackendStandsStill: a lapwing agent leaves a backend from which nothing comes any more while it has events to
// acknowledge, if it knows another one.
func TestBackendStandsStill(t *testing.T) {
	t.Parallel()
	two := []string{"ws://a:8081", "ws://b:8081"}
	const heartbeat = 45 // seconds after which a connection without a pong ends in any case
	for _, tt := range []struct {
		name   string
		urls   []string
		about  Connection
		run    func(p *pipe)
		ends   float64 // seconds from the beginning
		silent bool
	}{
		{"with events on their way", two, toLapwing, func(p *pipe) {
			p.at(5)
			p.failing("a")
		}, 11, true},
		{"after it has acknowledged", two, toLapwing, func(p *pipe) {
			p.failing("a")
			p.at(1)
			p.send(wire.AppendAck(nil, 1))
			p.at(20)
			p.failing("b")
		}, 26, true},
		{"after a message that is no acknowledgement", two, toLapwing, func(p *pipe) {
			p.failing("a")
			p.at(1)
			p.send(wire.AppendSchedule(nil, 1, true, nil))
		}, 8, true},
		{"right after the handshake", two, toLapwing, nil, 6, true},
		{"with nothing to acknowledge", two, toLapwing, func(*pipe) {}, heartbeat, false},
		{"when all is acknowledged", two, toLapwing, func(p *pipe) {
			p.failing("a")
			p.at(1)
			p.send(wire.AppendAck(nil, 1))
		}, heartbeat, false},
		{"slowed down", two, toLapwing, func(p *pipe) {
			p.failing("a")
			p.at(1)
			p.send(wire.AppendPace(nil, wire.PaceSlow, 5*time.Second))
		}, heartbeat, false},
		{"slowed down, and no more", two, toLapwing, func(p *pipe) {
			p.failing("a")
			p.at(1)
			p.send(wire.AppendPace(nil, wire.PaceSpool, 0))
			p.at(19)
			p.send(wire.AppendPace(nil, wire.PaceGo, 0))
		}, 26, true}, // it has looked at 20 s
		{"without another one", two[:1], toLapwing, func(p *pipe) { p.failing("a") }, heartbeat, false},
		{"in Sensu's protocol", two, toSensu, func(p *pipe) { p.failing("a") }, heartbeat, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := newTestTransport(t, func(o *TransportOptions) { o.BackendURLs = tt.urls })
				near, far := net.Pipe()
				p := &pipe{t: t, tr: tr, backend: wire.NewServerConn(far, nil, 0), began: time.Now()}
				go func() { _, _ = io.Copy(io.Discard, far) }() // it takes what comes, and answers no ping
				served := make(chan error, 1)
				var ended time.Duration
				go func() {
					err := newLink(tr, wire.NewClientConn(near, nil, 0), tt.about).serve(context.Background())
					ended = time.Since(p.began)
					served <- err
				}()
				if tt.run != nil {
					p.send(unknownAgent(t))
					synctest.Wait()
					tt.run(p)
				}
				err := <-served
				if got := ended.Seconds(); got != tt.ends || errors.Is(err, errSilent) != tt.silent {
					t.Errorf("the connection ended after %g s, want %g: %v", got, tt.ends, err)
				}
				if away := sentAway(err); away != tt.silent {
					t.Errorf("another backend is tried at once: %v", away)
				}
			})
		})
	}
}

// TestBusyBackendIsKept: a backend that acknowledges nothing but answers pings is not left.
func TestBusyBackendIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, func(o *TransportOptions) { o.BackendURLs = []string{"ws://a:8081", "ws://b:8081"} })
		p := newPipe(t, tr, toLapwing)
		p.failing("a")
		p.want(600, "0: a")
	})
}

// TestOtherBackendGetsTheEvents: the events of a backend that stands still go to the next one.
func TestOtherBackendGetsTheEvents(t *testing.T) {
	t.Parallel()
	first, second := new(fakeBackend).start(t), new(fakeBackend).start(t)
	tr := runTransport(t, nil, func(o *TransportOptions) {
		o.BackendURLs, o.InOrder = []string{first.url, second.url}, true
		o.AnswerTimeout, o.RetryMin, o.RetryMax = 100*time.Millisecond, time.Hour, time.Hour
	})
	stands := first.accept(t)
	stands.sendNotFound()
	tr.Send(result("a"))
	stands.readN(1) // and reads no more
	s := second.accept(t)
	s.sendNotFound()
	if got := s.readN(1); got[0].seq != 1 || got[0].check() != "a" {
		t.Errorf("the next backend got %+v", got)
	}
}

// TestAllBackendsStandStill: if all backends take connections and then stand still, each is tried once before the
// backoff. The wait of the backoff is so long that the test would not see its end.
func TestAllBackendsStandStill(t *testing.T) {
	t.Parallel()
	first, second := new(fakeBackend).start(t), new(fakeBackend).start(t)
	var log logged
	tr := runTransport(t, nil, func(o *TransportOptions) {
		o.BackendURLs, o.Logger = []string{first.url, second.url}, log.logger()
		o.AnswerTimeout, o.RetryMin, o.RetryMax = 30*time.Millisecond, time.Hour, time.Hour
	})
	waitFor(t, "it waits", func() bool { return strings.Contains(log.String(), "not connected to a backend") })
	if n := value(t, tr.metrics.connects.WithLabelValues("ok")); n != 2 {
		t.Errorf("%v connections to two backends before the wait", n)
	}
}

package session

import (
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lapwing-monitoring/lapwing/broker"
	"github.com/lapwing-monitoring/lapwing/config"
	"github.com/lapwing-monitoring/lapwing/eventlog"
	"github.com/lapwing-monitoring/lapwing/intake"
	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/schedule"
	"github.com/lapwing-monitoring/lapwing/state"
	"github.com/lapwing-monitoring/lapwing/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bareServer is a server without listener, configuration and log. It really writes to its sessions.
func bareServer(spread time.Duration) *Server {
	return newServer(Options{
		Logger: slog.New(slog.DiscardHandler), SendQueue: 1000, Spread: spread,
		Intake: new(intake.Intake), Registerer: prometheus.NewRegistry(),
	})
}

// bareIntake is an intake with quotas. Its log takes nothing and its state is empty.
func bareIntake(t *testing.T, quotas intake.Quotas) *intake.Intake {
	t.Helper()
	store, err := config.New(config.Options{Broker: new(broker.Broker)})
	if err != nil {
		t.Fatal(err)
	}
	in, err := intake.New(intake.Options{Config: store, Log: new(eventlog.Log), State: new(state.State), Quotas: quotas})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// startBare runs the pacer until the test ends.
func startBare(t *testing.T, spread time.Duration) *Server {
	s := bareServer(spread)
	go s.pacer.run()
	t.Cleanup(func() {
		for _, open := range s.registry.stop() {
			open.close()
		}
		s.pacer.close()
		s.writing.Wait()
	})
	return s
}

// peer is an agent's end of a session, and the frames that arrived there.
type peer struct {
	*session
	done chan struct{}
	gate chan struct{} // must be received from before each read

	mu  sync.Mutex
	got []arrival
}

type arrival struct {
	typ     string
	payload []byte
	at      time.Time
}

// join opens a session over an unbuffered pipe. In a synctest bubble time therefore stands still until all is read.
func (s *Server) join(t *testing.T, name string, lapwing bool, subscriptions ...string) *peer {
	t.Helper()
	near, far := net.Pipe()
	one := s.newSession(wire.NewServerConn(near, nil, 0), "default", name)
	one.encoding, one.lapwing = wire.Protobuf, lapwing
	if !s.registry.add(one) {
		t.Fatal("the server is stopping")
	}
	p := &peer{session: one, done: make(chan struct{}), gate: make(chan struct{}, 1)}
	go p.read(t, wire.NewClientConn(far, nil, 0))
	t.Cleanup(func() {
		one.close()
		<-p.done
	})
	if len(subscriptions) > 0 {
		s.registry.subscribe(one, subscriptions)
	}
	return p
}

func (p *peer) read(t *testing.T, conn *wire.Conn) {
	defer close(p.done)
	for {
		msg, err := conn.Read()
		if err != nil {
			return
		}
		typ, payload, err := wire.Split(msg)
		if err != nil {
			t.Error(err)
		}
		p.gate <- struct{}{}
		<-p.gate
		p.mu.Lock()
		p.got = append(p.got, arrival{typ, append([]byte(nil), payload...), time.Now()})
		p.mu.Unlock()
	}
}

// take waits until nothing happens in the bubble, and returns the frames that arrived since the last call.
func (p *peer) take() []arrival {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

func newTick(check string, tick time.Time, subscriptions ...string) schedule.Request {
	return schedule.Request{
		Namespace: "default", Subscriptions: subscriptions, Tick: tick, Due: tick,
		Request: &resource.CheckRequest{
			Config: &resource.CheckConfig{Metadata: resource.ObjectMeta{Namespace: "default", Name: check}, Command: "true", Interval: 10},
			Issued: tick.Unix(),
		},
	}
}

// checkOf returns the check that a request is for.
func checkOf(t *testing.T, a arrival) string {
	t.Helper()
	var q resource.CheckRequest
	if a.typ != wire.TypeCheckRequest {
		t.Fatalf("%s instead of a request", a.typ)
	}
	if err := wire.Decode(a.payload, wire.Protobuf, &q); err != nil {
		t.Fatal(err)
	}
	return q.Config.Metadata.Name
}

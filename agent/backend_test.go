package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// patience bounds how long tests wait for what must happen.
const patience = time.Minute

// fakeBackend is a backend that the test controls.
type fakeBackend struct {
	stock      bool // a Sensu backend: no batches, no acknowledgements
	json       bool // offers JSON only
	maxMessage int64
	refuse     int // status to refuse the next handshakes with

	mu       sync.Mutex // guards the fields above once it has started
	url      string
	handlers sync.WaitGroup
	sessions chan *fakeSession
}

// become changes b for later connections.
func (b *fakeBackend) become(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// fakeSession is one connection of an agent.
type fakeSession struct {
	*wire.Conn
	raw    net.Conn
	t      testing.TB
	enc    wire.Encoding
	header http.Header

	receipts []wire.Receipt // that read has met
}

// start starts b. It and its sessions stop with the test.
func (b *fakeBackend) start(t testing.TB) *fakeBackend {
	t.Helper()
	b.sessions = make(chan *fakeSession, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.upgrade(t, w, r) }))
	b.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	t.Cleanup(func() {
		srv.Close()
		b.handlers.Wait()
		for len(b.sessions) > 0 {
			s := <-b.sessions
			s.Close(wire.CloseGoingAway, "bye")
		}
	})
	return b
}

func (b *fakeBackend) upgrade(t testing.TB, w http.ResponseWriter, r *http.Request) {
	b.handlers.Add(1)
	defer b.handlers.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != 0 {
		http.Error(w, "bad credentials", b.refuse)
		return
	}
	s := &fakeSession{t: t, enc: wire.Protobuf, header: r.Header.Clone()}
	answer := http.Header{"Accept": {"application/octet-stream", "application/json"}, wire.HeaderBackendID: {"fake"}}
	if b.json {
		s.enc = wire.JSON
		answer["Accept"] = []string{"application/json"}
	}
	if !b.stock {
		answer.Set(wire.HeaderProtocol, wire.ProtocolVersion)
	}
	conn, rw, _, err := ws.HTTPUpgrader{Header: answer}.Upgrade(r, w)
	if err != nil {
		t.Logf("upgrade: %v", err) // the agent disconnected in the meantime
		return
	}
	s.raw = conn
	s.Conn = wire.NewServerConn(conn, rw.Reader, b.maxMessage)
	b.sessions <- s
}

// accept returns the next connection.
func (b *fakeBackend) accept(t testing.TB) *fakeSession {
	t.Helper()
	select {
	case s := <-b.sessions:
		t.Cleanup(func() { s.Close(wire.CloseGoingAway, "bye") })
		return s
	case <-time.After(patience):
		t.Fatal("no connection")
		return nil
	}
}

func (s *fakeSession) send(typ string, m wire.Message) {
	s.t.Helper()
	msg, err := wire.Append(nil, typ, s.enc, m)
	if err == nil {
		err = s.Write(msg)
	}
	if err != nil {
		s.t.Fatalf("send %s: %v", typ, err)
	}
}

// sendNotFound tells the agent that the backend does not know it.
func (s *fakeSession) sendNotFound() {
	s.t.Helper()
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: notFound, Namespace: "default"}, EntityClass: "agent"})
}

func (s *fakeSession) ack(seq uint64) {
	s.t.Helper()
	if err := s.Write(wire.AppendAck(nil, seq)); err != nil {
		s.t.Fatalf("send ack: %v", err)
	}
}

// received is an event that arrived.
type received struct {
	seq       uint64 // 0 in a plain message
	keepalive bool
	event     *resource.Event
}

func (r received) check() string { return r.event.Check.Metadata.Name }

// read returns the events of the next message.
func (s *fakeSession) read() []received {
	s.t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(patience))
	msg, err := s.Read()
	if err != nil {
		s.t.Fatalf("read: %v", err)
	}
	typ, payload, err := wire.Split(msg)
	if err != nil {
		s.t.Fatalf("read %q: %v", msg, err)
	}
	var out []received
	switch typ {
	case wire.TypeEvents:
		events := wire.ReadEvents(payload)
		for err == nil && events.Next() {
			ev := new(resource.Event)
			out = append(out, received{events.Seq, events.Item.Keepalive, ev})
			err = ev.UnmarshalProto(events.Item.Event)
		}
		err = errors.Join(err, events.Err())
	case wire.TypeEvent, wire.TypeKeepalive:
		ev := new(resource.Event)
		if s.enc == wire.JSON && !json.Valid(payload) {
			s.t.Fatalf("not JSON: %.100q", payload)
		}
		err = wire.Decode(payload, s.enc, ev)
		out = []received{{0, typ == wire.TypeKeepalive, ev}}
	case wire.TypeReceipt:
		var receipt wire.Receipt
		receipt, err = wire.DecodeReceipt(payload)
		s.receipts = append(s.receipts, receipt)
	default:
		s.t.Fatalf("unexpected message of type %q", typ)
	}
	if err != nil {
		s.t.Fatalf("decode %s: %v", typ, err)
	}
	return out
}

// readN returns the next n events, from as many messages as needed.
func (s *fakeSession) readN(n int) []received {
	s.t.Helper()
	var out []received
	for len(out) < n {
		out = append(out, s.read()...)
	}
	return out
}

// next returns the next event that ok takes. The others are passed over, without an acknowledgement; the time for all of
// them is bounded, since keepalives never end.
func (s *fakeSession) next(what string, ok func(received) bool) received {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, r := range s.read() {
			if ok(r) {
				return r
			}
		}
	}
	s.t.Fatalf("no %s came in %v", what, patience)
	return received{}
}

// readCheck returns the next event of the named check.
func (s *fakeSession) readCheck(name string) *resource.Event {
	s.t.Helper()
	return s.next("result of "+name, func(r received) bool { return !r.keepalive && r.check() == name }).event
}

// testTransport is a transport connected to b alone, running until the test ends or stop is called.
type testTransport struct {
	*Transport
	stop  func()
	acked chan uint64
	lost  chan error
}

func runTransport(t testing.TB, b *fakeBackend, change func(*TransportOptions)) *testTransport {
	t.Helper()
	tt := &testTransport{acked: make(chan uint64, 1000), lost: make(chan error, 1000)}
	opts := TransportOptions{
		Name:         "web-1",
		User:         "agent",
		Password:     "secret",
		RetryMin:     time.Millisecond,
		RetryMax:     time.Millisecond,
		Acked:        func(seq uint64) { tt.acked <- seq },
		OnDisconnect: func(err error) { tt.lost <- err },
	}
	if b != nil {
		opts.BackendURLs = []string{b.url}
	}
	if change != nil {
		change(&opts)
	}
	var err error
	if tt.Transport, err = NewTransport(opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tt.Run(ctx)
	}()
	tt.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(tt.stop)
	return tt
}

// value reads a counter or gauge.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %T", *new(T))
		return *new(T)
	}
}

// waitFor polls for a state that must come and that no signal announces.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) { // pause between polls
		if time.Now().After(deadline) {
			t.Fatalf("not yet: %s", what)
		}
	}
}

// result is an event of the named check.
func result(check string) *resource.Event {
	return &resource.Event{
		Timestamp: 1,
		Entity:    &resource.Entity{EntityClass: "agent", Metadata: resource.ObjectMeta{Name: "web-1", Namespace: "default"}},
		Check:     &resource.Check{Metadata: resource.ObjectMeta{Name: check, Namespace: "default"}, Interval: 1},
	}
}

// logged is a log that tests can search.
type logged struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) count(part string) int { return strings.Count(l.String(), part) }

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

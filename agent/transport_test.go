package agent

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

func TestTransportHandshake(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	runTransport(t, b, func(o *TransportOptions) {
		o.Namespace = "prod"
		o.Subscriptions = []string{"linux", "web"}
	})
	s := b.accept(t)
	for name, want := range map[string]string{
		"Sensu-Agentname":     "web-1",
		"Sensu-Namespace":     "prod",
		"Sensu-User":          "agent",
		"Sensu-Subscriptions": "linux,web",
		"Authorization":       "Basic " + base64.StdEncoding.EncodeToString([]byte("agent:secret")),
		"Accept":              "application/octet-stream",
		"Lapwing-Protocol":    "1",
	} {
		if got := s.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if epoch := s.header.Get("Lapwing-Epoch"); !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(epoch) {
		t.Errorf("epoch %q", epoch)
	}

	runTransport(t, b, func(o *TransportOptions) { o.SensuOnly = true })
	for name := range b.accept(t).header {
		if strings.HasPrefix(name, "Lapwing") {
			t.Errorf("%s sent although told to keep to Sensu's protocol", name)
		}
	}
	runTransport(t, b, func(o *TransportOptions) {
		o.TLS = func() *tls.Config { return &tls.Config{Certificates: make([]tls.Certificate, 1)} }
	})
	if h := b.accept(t).header; h.Get("Authorization") != "" || h.Get("Sensu-User") != "" {
		t.Error("credentials sent beside a certificate")
	}
}

func TestTransportHoldsBackUntilConfigured(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, nil)
	tr.Send(result("early"))
	s := b.accept(t)
	s.send("nonsense", &resource.Event{}) // arrives, but is not the awaited message
	// Too short a time can miss a message, but cannot cause one.
	_ = s.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if msg, err := s.Read(); err == nil {
		t.Fatalf("sent before the backend spoke: %q", msg)
	}
}

func TestTransportEntityConfig(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	ready := make(chan struct{}, 1)
	configs := make(chan *resource.EntityConfig, 10)
	tr := runTransport(t, b, func(o *TransportOptions) {
		o.OnReady = func() { ready <- struct{}{} }
		o.OnEntityConfig = func(c *resource.EntityConfig) { configs <- c }
	})
	tr.Send(result("early"))
	s := b.accept(t)
	s.sendNotFound()
	receive(t, ready)
	if c := receive(t, configs); c != nil {
		t.Errorf("got entity config %+v of an agent that is not known", c)
	}
	if got := s.readN(1); got[0].check() != "early" || got[0].seq != 1 || got[0].keepalive {
		t.Errorf("got %+v", got)
	}
	s.send(wire.TypeEntityConfig, &resource.EntityConfig{Metadata: resource.ObjectMeta{Name: "web-1", Labels: map[string]string{"a": "b"}}})
	if c := receive(t, configs); c.Metadata.Name != "web-1" || c.Metadata.Labels["a"] != "b" {
		t.Errorf("got entity config %+v", c)
	}
}

func TestTransportGivesUpWaitingForConfig(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, func(o *TransportOptions) { o.ConfigTimeout = 10 * time.Millisecond })
	tr.Send(result("a"))
	if got := b.accept(t).readN(1); got[0].check() != "a" {
		t.Errorf("got %+v", got)
	}
}

func TestTransportResendsWhatIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, nil)
	s := b.accept(t)
	epoch := s.header.Get(wire.HeaderEpoch)
	s.sendNotFound()
	for i := 1; i <= 4; i++ {
		if seq := tr.Send(result(fmt.Sprint("check-", i))); seq != uint64(i) {
			t.Fatalf("event %d got number %d", i, seq)
		}
	}
	if got := tr.SendKeepalive(result("keepalive")); got != 5 {
		t.Fatalf("keepalive got number %d", got)
	}
	s.readN(5)
	s.ack(2)
	if got := receive(t, tr.acked); got != 2 {
		t.Fatalf("acknowledged %d", got)
	}
	s.ack(1000) // of what was never sent
	if got := receive(t, tr.acked); got != 5 {
		t.Fatalf("acknowledged %d", got)
	}
	tr.Send(result("check-6"))
	s.readN(1)
	tr.Send(result("check-7"))
	s.readN(1)
	s.ack(6)
	receive(t, tr.acked)
	s.Close(wire.CloseGoingAway, "bye")
	err := receive(t, tr.lost)
	if closed, ok := errors.AsType[*wire.CloseError](err); !ok || closed.Code != wire.CloseGoingAway {
		t.Errorf("lost the connection by %v", err)
	}
	tr.Send(result("check-8"))

	s = b.accept(t)
	if got := s.header.Get(wire.HeaderEpoch); got != epoch {
		t.Errorf("epoch changed from %s to %s", epoch, got)
	}
	s.sendNotFound()
	for i, r := range s.readN(2) {
		if want := uint64(7 + i); r.seq != want || r.check() != fmt.Sprint("check-", want) {
			t.Errorf("got event %d of %s, want %d", r.seq, r.check(), want)
		}
	}
	s.ack(8)
	if got := receive(t, tr.acked); got != 8 || tr.Buffered() != 0 {
		t.Errorf("acknowledged %d, %d held", got, tr.Buffered())
	}
	tr.stop()
	for name, got := range map[string]float64{"sent": value(t, tr.metrics.sent) - 9, "acked": value(t, tr.metrics.acked) - 8, "dropped": value(t, tr.metrics.dropped)} {
		if got != 0 {
			t.Errorf("events %s are off by %v", name, got)
		}
	}
}

func TestTransportPlainMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		b         *fakeBackend
		sensuOnly bool
	}{
		{name: "stock backend", b: &fakeBackend{stock: true}},
		{name: "stock backend, JSON", b: &fakeBackend{stock: true, json: true}},
		{name: "lapwing backend, told not to", b: &fakeBackend{}, sensuOnly: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := tt.b.start(t)
			requests := make(chan *resource.CheckRequest, 1)
			connections := make(chan Connection, 1)
			tr := runTransport(t, b, func(o *TransportOptions) {
				o.SensuOnly = tt.sensuOnly
				o.OnCheckRequest = func(req *resource.CheckRequest) { requests <- req }
				o.OnConnect = func(c Connection) { connections <- c }
			})
			s := b.accept(t)
			if c := receive(t, connections); c != (Connection{URL: b.url, BackendID: "fake", Encoding: s.enc}) {
				t.Errorf("connected to %+v", c)
			}
			s.sendNotFound()
			tr.SendKeepalive(result("keepalive"))
			want := result("a")
			want.Check.Output = "hello\n"
			tr.Send(want)
			got := s.readN(2)
			if !got[0].keepalive || got[1].keepalive || got[1].event.Check.Output != "hello\n" || got[1].seq != 0 {
				t.Errorf("got %+v", got)
			}
			for receive(t, tr.acked) != 2 {
			}
			if tr.Buffered() != 0 {
				t.Errorf("%d events held after they were written", tr.Buffered())
			}
			s.send(wire.TypeCheckRequest, &resource.CheckRequest{Config: &resource.CheckConfig{Command: "true"}, Issued: 7})
			if req := receive(t, requests); req.Config.Command != "true" || req.Issued != 7 {
				t.Errorf("got %+v", req)
			}
		})
	}
}

func TestTransportFromLapwingToStock(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, nil)
	s := b.accept(t)
	s.sendNotFound()
	tr.Send(result("a"))
	s.readN(1)
	b.become(func() { b.stock = true })
	s.Close(wire.CloseGoingAway, "bye")
	s = b.accept(t)
	s.sendNotFound()
	if got := s.readN(1); got[0].seq != 0 || got[0].check() != "a" {
		t.Errorf("got %+v", got)
	}
}

func TestTransportNaNInJSON(t *testing.T) {
	t.Parallel()
	b := (&fakeBackend{stock: true, json: true}).start(t)
	tr := runTransport(t, b, nil)
	bad := result("bad")
	bad.Metrics = &resource.Metrics{Points: []resource.MetricPoint{{Name: "x", Value: math.NaN()}}}
	tr.Send(bad)
	tr.Send(result("good"))
	s := b.accept(t)
	s.sendNotFound()
	if got := s.readN(1); got[0].check() != "good" {
		t.Errorf("got %+v", got)
	}
	for tr.Buffered() > 0 {
		receive(t, tr.acked)
	}
	if n := value(t, tr.metrics.dropped); n != 1 {
		t.Errorf("%v events given up", n)
	}
}

func TestTransportGivesUpWhatIsTooBig(t *testing.T) {
	t.Parallel()
	b := (&fakeBackend{maxMessage: 100 << 10}).start(t)
	tr := runTransport(t, b, nil)
	tr.Send(result("before"))
	big := result("big")
	big.Check.Output = strings.Repeat("x", 400<<10)
	tr.Send(big)
	tr.Send(result("after"))
	s := b.accept(t)
	s.sendNotFound()
	s.read()
	if _, err := s.Read(); !errors.Is(err, wire.ErrTooBig) {
		t.Fatalf("got %v", err)
	}
	s = b.accept(t)
	s.sendNotFound()
	got := s.readN(2)
	if got[0].seq != 1 || got[1].seq != 3 || got[1].check() != "after" {
		t.Errorf("got %+v", got)
	}
	if n := value(t, tr.metrics.dropped); n != 1 {
		t.Errorf("%v events given up", n)
	}
}

// TestTransportMakesBatchesSmaller: the backend takes each event alone but not all in one message.
func TestTransportMakesBatchesSmaller(t *testing.T) {
	t.Parallel()
	b := (&fakeBackend{maxMessage: 50 << 10}).start(t)
	tr := runTransport(t, b, nil)
	for i := range 20 {
		ev := result(fmt.Sprint("check-", i))
		ev.Check.Output = strings.Repeat("x", 10<<10)
		tr.Send(ev)
	}
	var got []received
	for last := uint64(0); last < 20; {
		s := b.accept(t)
		s.sendNotFound()
		for {
			_ = s.SetReadDeadline(time.Now().Add(patience))
			msg, err := s.Read()
			if errors.Is(err, wire.ErrTooBig) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			_, payload, _ := wire.Split(msg)
			events := wire.ReadEvents(payload)
			for events.Next() {
				got, last = append(got, received{seq: events.Seq}), events.Seq
			}
			if err := events.Err(); err != nil {
				t.Fatal(err)
			}
			s.ack(last)
			if last == 20 {
				break
			}
		}
	}
	if len(got) != 20 || value(t, tr.metrics.dropped) != 0 {
		t.Errorf("got %d events, %v given up", len(got), value(t, tr.metrics.dropped))
	}
}

func TestTransportTakesBackendsInTurn(t *testing.T) {
	t.Parallel()
	refusing := (&fakeBackend{refuse: http.StatusUnauthorized}).start(t)
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, func(o *TransportOptions) {
		o.BackendURLs = []string{refusing.url, b.url, "ws://127.0.0.1:1"}
	})
	for range 3 {
		s := b.accept(t)
		s.sendNotFound()
		s.Close(wire.CloseGoingAway, "bye")
		receive(t, tr.lost)
	}
	if n := value(t, tr.metrics.connects.WithLabelValues("error")); n < 4 {
		t.Errorf("%v failed attempts, want two between each two connections", n)
	}
}

func TestTransportLeavesPolitely(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	ready := make(chan struct{})
	tr := runTransport(t, b, func(o *TransportOptions) { o.OnReady = func() { close(ready) } })
	s := b.accept(t)
	s.sendNotFound()
	receive(t, ready)
	go tr.stop()
	_, err := s.Read()
	if closed, ok := errors.AsType[*wire.CloseError](err); !ok || *closed != (wire.CloseError{Code: 1001, Reason: "bye"}) {
		t.Errorf("got %v", err)
	}
	if err := receive(t, tr.lost); err != nil {
		t.Errorf("OnDisconnect got %v", err)
	}
	if tr.Connected() {
		t.Error("still connected")
	}
}

func TestTransportStopsWhileTheBackendDoesNotRead(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, nil)
	ev := result("a")
	ev.Check.Output = strings.Repeat("x", 16<<20) // more than the sockets buffer
	tr.Send(ev)
	s := b.accept(t)
	s.sendNotFound()
	if _, err := s.raw.Read(make([]byte, 1)); err != nil { // the write has begun
		t.Fatal(err)
	}
	started := time.Now()
	tr.stop()
	if d := time.Since(started); d > 25*time.Second { // the write would give up after 30 s
		t.Errorf("stopped after %v", d)
	}
}

func TestTransportHeartbeat(t *testing.T) {
	t.Parallel()
	t.Run("pings are not answered", func(t *testing.T) {
		t.Parallel()
		b := new(fakeBackend).start(t)
		tr := runTransport(t, b, func(o *TransportOptions) {
			o.HeartbeatInterval = 20 * time.Millisecond
			o.HeartbeatTimeout = 100 * time.Millisecond
		})
		b.accept(t).sendNotFound() // and then never reads
		if err := receive(t, tr.lost); !strings.Contains(fmt.Sprint(err), "timeout") {
			t.Errorf("lost the connection by %v", err)
		}
		b.accept(t)
	})
	t.Run("pings are answered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			tr := newTestTransport(t, nil)
			p := newPipe(t, tr, toLapwing)
			p.at(3600)
			p.failing("a")
			p.want(3600, "3600: a")
		})
	})
}

func TestTransportBadMessages(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, nil)
	s := b.accept(t)
	for _, msg := range []string{"nonsense\n", "entity_config\n\xff\xff", "check_request\n\xff", "ack\n", "check_request\n"} {
		if err := s.Write([]byte(msg)); err != nil {
			t.Fatal(err)
		}
	}
	s.sendNotFound()
	tr.Send(result("a"))
	s.readN(1)
	if err := s.Write([]byte("no line feed")); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, tr.lost); !errors.Is(err, wire.ErrNoSeparator) {
		t.Errorf("lost the connection by %v", err)
	}
}

func TestTransportOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []TransportOptions{
		{},
		{Name: "a", BackendURLs: []string{"http://x"}},
		{Name: "a", BackendURLs: []string{"ws://"}},
		{Name: "a", BackendURLs: []string{"::"}},
		{Name: "a", RetryMin: -1},
		{Name: "a", RetryMultiplier: 0.5},
		{Name: "a", BufferEvents: -1},
	} {
		if _, err := NewTransport(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	for in, want := range map[string]string{
		"ws://h":            "ws://h:8081",
		"wss://h/path":      "wss://h:8081/path",
		"ws://h:1":          "ws://h:1",
		"ws://[::1]":        "ws://[::1]:8081",
		"ws://u:p@h/p?x=y":  "ws://u:p@h:8081/p?x=y",
		"ws://127.0.0.1:1/": "ws://127.0.0.1:1/",
	} {
		if got, err := backendURL(in); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
	tr, err := NewTransport(TransportOptions{Name: "a", HeartbeatInterval: 60 * time.Second})
	if err != nil || tr.opts.HeartbeatTimeout != 100*time.Second {
		t.Errorf("heartbeat timeout %v, %v", tr.opts.HeartbeatTimeout, err)
	}
}

// TestTransportMany runs a small fleet in one process and cuts all its connections once.
func TestTransportMany(t *testing.T) {
	t.Parallel()
	const agents, events = 100, 20
	b := new(fakeBackend).start(t)
	ctx, cancel := context.WithCancel(t.Context())
	metrics := NewMetrics(nil)
	done := make(chan int, agents)
	for i := range agents {
		finished := make(chan struct{})
		tr, err := NewTransport(TransportOptions{
			Name: fmt.Sprint("agent-", i), BackendURLs: []string{b.url}, Metrics: metrics,
			RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond,
			Acked: func(seq uint64) {
				if seq == events {
					close(finished)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			<-finished
			cancel()
		}()
		for range events {
			tr.Send(result("a"))
		}
		go func() {
			tr.Run(ctx)
			done <- tr.Buffered()
		}()
	}
	// Each agent's first connection is cut before its acknowledgement, the second after it.
	seen := map[string]bool{}
	for range 2 * agents {
		s := b.accept(t)
		s.sendNotFound()
		got := s.readN(events)
		if name := s.header.Get(wire.HeaderAgentName); !seen[name] {
			seen[name] = true
			s.Close(wire.CloseGoingAway, "bye")
		} else {
			s.ack(got[len(got)-1].seq)
		}
	}
	for range agents {
		if held := receive(t, done); held != 0 {
			t.Errorf("%d events held", held)
		}
	}
	cancel()
	if n := value(t, metrics.acked); n != agents*events {
		t.Errorf("%v events acknowledged", n)
	}
	if n := value(t, metrics.buffered) + value(t, metrics.connected); n != 0 {
		t.Errorf("gauges are off by %v", n)
	}
}

func TestTransportSaysOnceThatItIsFull(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	tr, err := NewTransport(TransportOptions{Name: "a", BufferEvents: 2, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		tr.Send(result(fmt.Sprint(i)))
	}
	if n := strings.Count(logged.String(), "event buffer full"); n != 1 || value(t, tr.metrics.dropped) != 3 || value(t, tr.metrics.buffered) != 2 {
		t.Errorf("said %d times: dropped %v, buffered %v", n, value(t, tr.metrics.dropped), value(t, tr.metrics.buffered))
	}
}

package agent

import (
	"bytes"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/wire"
)

// TestTransportIsSentAway: an agent moves to another backend at once when its backend drains. The wait it could make
// instead is so long that the test would not see its end.
func TestTransportIsSentAway(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(tr *testTransport, s *fakeSession){
		"closed": func(_ *testTransport, s *fakeSession) {
			s.sendNotFound()
			s.Close(wire.CloseGoingAway, "bye")
		},
		"closed before it is ready": func(_ *testTransport, s *fakeSession) { s.Close(wire.CloseGoingAway, "bye") },
		"asked to leave": func(tr *testTransport, s *fakeSession) {
			s.sendNotFound()
			tr.Send(result("before"))
			s.readN(1)
			if err := s.Write(wire.AppendPace(nil, wire.PaceLeave, 0)); err != nil {
				s.t.Error(err)
			}
			s.ack(1)
			if _, err := s.Read(); !isBye(err) {
				s.t.Errorf("asked to leave, it said %v", err)
			}
		},
		"refused": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := new(fakeBackend).start(t), new(fakeBackend).start(t)
			if leave == nil {
				first.refuse = http.StatusServiceUnavailable
			}
			tr := runTransport(t, nil, func(o *TransportOptions) {
				o.BackendURLs, o.InOrder = []string{first.url, second.url}, true
				o.RetryMin, o.RetryMax = time.Hour, time.Hour
			})
			if leave != nil {
				leave(tr, first.accept(t))
			}
			s := second.accept(t)
			s.sendNotFound()
			tr.Send(result("after"))
			if got := s.readN(1); len(got) != 1 || got[0].check() != "after" {
				t.Errorf("the next backend got %+v", got)
			}
		})
	}
}

// TestTransportAllAreDraining: when all backends drain, an agent tries each once and then waits.
func TestTransportAllAreDraining(t *testing.T) {
	t.Parallel()
	var list []*fakeBackend
	var urls []string
	for range 3 {
		b := (&fakeBackend{refuse: http.StatusServiceUnavailable}).start(t)
		list, urls = append(list, b), append(urls, b.url)
	}
	begin := time.Now()
	tr := runTransport(t, nil, func(o *TransportOptions) {
		o.BackendURLs = urls
		o.RetryMin, o.RetryMax = 300*time.Millisecond, 300*time.Millisecond
	})
	failed := tr.metrics.connects.WithLabelValues("error")
	waitFor(t, "each was asked once", func() bool { return value(t, failed) >= 3 })
	waitFor(t, "they are asked again", func() bool { return value(t, failed) >= 4 })
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("a backend was asked twice within %s", took)
	}
	list[1].become(func() { list[1].refuse = 0 })
	list[1].accept(t)
}

// TestTransportReturns: an agent that prefers a backend returns to it when it can, with no event lost or sent twice.
func TestTransportReturns(t *testing.T) {
	t.Parallel()
	for _, lasts := range []string{"503", "stopped"} {
		t.Run(lasts, func(t *testing.T) {
			t.Parallel()
			first, second := new(fakeBackend).start(t), new(fakeBackend).start(t)
			tr := runTransport(t, nil, func(o *TransportOptions) {
				o.BackendURLs = []string{first.url, second.url}
				o.InOrder = true
				o.RetryMin, o.RetryMax = 20*time.Millisecond, 20*time.Millisecond
			})
			s := first.accept(t)
			s.sendNotFound()
			first.become(func() { first.refuse = http.StatusServiceUnavailable })
			if lasts == "stopped" {
				first.become(func() { first.refuse = http.StatusBadGateway })
			}
			s.Close(wire.CloseGoingAway, "bye")

			s = second.accept(t)
			s.sendNotFound()
			tr.Send(result("one"))
			s.readN(1)
			failed := tr.metrics.connects.WithLabelValues("error")
			waitFor(t, "it looks for the first", func() bool { return value(t, failed) >= 3 })
			if !tr.Connected() {
				t.Error("it left the second before the first takes it")
			}
			first.become(func() { first.refuse = 0 })
			back := first.accept(t) // the first has both now
			back.sendNotFound()
			tr.Send(result("two")) // either backend may get it, but only one
			s.ack(1)
			twice := 0
			for {
				msg, err := s.Read()
				if isBye(err) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				twice += bytes.Count(msg, []byte("two"))
				s.ack(2)
			}
			tr.Send(result("three"))
			for _, r := range back.readN(2 - twice) {
				if r.check() == "one" {
					t.Errorf("event %d was delivered already", r.seq)
				}
				back.ack(r.seq)
			}
			waitFor(t, "all is delivered", func() bool { return tr.Buffered() == 0 })
			if n := value(t, tr.metrics.sent); n != 3 {
				t.Errorf("%v events sent, want 3", n)
			}
		})
	}
}

func isBye(err error) bool {
	closed, ok := errors.AsType[*wire.CloseError](err)
	return ok && *closed == wire.CloseError{Code: wire.CloseGoingAway, Reason: "bye"}
}

// TestTransportOneBackend: with a single backend the agent waits after a refusal.
func TestTransportOneBackend(t *testing.T) {
	t.Parallel()
	b := new(fakeBackend).start(t)
	tr := runTransport(t, b, func(o *TransportOptions) { o.RetryMin, o.RetryMax = 100*time.Millisecond, 100*time.Millisecond })
	s := b.accept(t)
	s.sendNotFound()
	b.become(func() { b.refuse = http.StatusServiceUnavailable })
	begin := time.Now()
	s.Close(wire.CloseGoingAway, "bye")
	failed := tr.metrics.connects.WithLabelValues("error")
	waitFor(t, "it asks", func() bool { return value(t, failed) >= 3 })
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("three attempts within %s", took)
	}
	b.become(func() { b.refuse = 0 })
	b.accept(t)
}

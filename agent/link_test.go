package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// pipe is a link over a connection in memory, in a bubble of synctest, and what the backend's end received.
type pipe struct {
	t       *testing.T
	tr      *Transport
	backend *wire.Conn
	began   time.Time
	stop    func() error

	mu  sync.Mutex // guards got
	got []string   // each message as "seconds: check check" or "seconds: receipt"
}

// newPipe starts a link that is configured, and notes what it sends.
func newPipe(t *testing.T, tr *Transport, about Connection) *pipe {
	t.Helper()
	p := connect(t, tr, about)
	p.send(unknownAgent(t))
	return p
}

// unknownAgent is the message for an agent that the backend does not know.
func unknownAgent(t *testing.T) []byte {
	t.Helper()
	msg, err := wire.Append(nil, wire.TypeEntityConfig, wire.Protobuf, &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Name: notFound, Namespace: "default"}, EntityClass: "agent",
	})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func connect(t *testing.T, tr *Transport, about Connection) *pipe {
	t.Helper()
	agent, backend := net.Pipe()
	p := &pipe{t: t, tr: tr, backend: wire.NewServerConn(backend, nil, 0), began: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- newLink(tr, wire.NewClientConn(agent, nil, 0), about).serve(ctx) }()
	go p.read()
	p.stop = func() error {
		cancel()
		err, ok := <-served
		if ok {
			close(served)
		}
		return err
	}
	t.Cleanup(func() { _ = p.stop() })
	return p
}

func (p *pipe) read() {
	for {
		msg, err := p.backend.Read()
		if err != nil {
			if closed, ok := errors.AsType[*wire.CloseError](err); ok {
				p.note(fmt.Sprintf("%g: closed %d", time.Since(p.began).Seconds(), closed.Code))
			}
			return
		}
		typ, payload, _ := wire.Split(msg)
		line := fmt.Sprintf("%g:", time.Since(p.began).Seconds())
		note := func(event []byte) {
			var ev resource.Event
			if err := ev.UnmarshalProto(event); err != nil {
				p.t.Errorf("message %q: %v", msg, err)
			}
			name := "metrics"
			if ev.Check != nil {
				name = ev.Check.Metadata.Name
			}
			line += " " + name
		}
		switch typ {
		case wire.TypeEvents:
			events := wire.ReadEvents(payload)
			for events.Next() {
				note(events.Item.Event)
			}
			if err := events.Err(); err != nil {
				p.t.Errorf("message %q: %v", msg, err)
			}
		case wire.TypeReceipt:
			r, err := wire.DecodeReceipt(payload)
			if err != nil {
				p.t.Errorf("message %q: %v", msg, err)
			}
			line += strings.TrimRight(fmt.Sprintf(" %v %s %s", r.Outcome, checkKey(r.Check, r.Entity), r.Turn)+": "+r.Reason, ": ")
		default:
			note(payload)
		}
		p.note(line)
	}
}

func (p *pipe) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, line)
}

// send returns when the agent has handled the message.
func (p *pipe) send(msg []byte) {
	p.t.Helper()
	if err := p.backend.Write(msg); err != nil && !errors.Is(err, io.ErrClosedPipe) { // the message may be the cause
		p.t.Errorf("send %q: %v", msg, err)
	}
	synctest.Wait()
}

// at waits until a time after the beginning.
func (p *pipe) at(seconds float64) {
	time.Sleep(time.Until(p.began.Add(time.Duration(seconds * float64(time.Second))))) // the bubble's time
	synctest.Wait()
}

// want waits until a time and compares what was received by then.
func (p *pipe) want(seconds float64, want ...string) {
	p.t.Helper()
	p.at(seconds)
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.got; !slices.Equal(got, want) {
		p.t.Errorf("up to %gs received %q, want %q", seconds, got, want)
	}
	p.got = nil
}

func (p *pipe) ok(checks ...string)      { p.result(0, checks...) }
func (p *pipe) failing(checks ...string) { p.result(2, checks...) }

func (p *pipe) result(status uint32, checks ...string) {
	for _, c := range checks {
		ev := result(c)
		ev.Check.Status = status
		p.tr.Send(ev)
	}
}

// newTestTransport returns a transport that is not connected.
func newTestTransport(t *testing.T, change func(*TransportOptions)) *Transport {
	t.Helper()
	opts := DefaultTransportOptions()
	opts.Name = "web-1"
	if change != nil {
		change(&opts)
	}
	tr, err := NewTransport(opts)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var (
	toLapwing = Connection{Lapwing: true, Encoding: wire.Protobuf}
	toSensu   = Connection{Encoding: wire.Protobuf}
)

func TestBatches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		about Connection
		run   func(p *pipe)
	}{
		{"results that stay OK wait for company, from the first", toLapwing, func(p *pipe) {
			p.ok("a")
			p.at(0.3)
			p.ok("b")
			p.at(0.999)
			p.ok("c")
			p.want(1, "1: a b c")
			p.at(3)
			p.ok("a")
			p.want(3.999)
			p.want(4, "4: a")
		}},
		{"news leaves at once, with what waits", toLapwing, func(p *pipe) {
			p.ok("a")
			p.at(0.5)
			p.failing("b")
			p.want(0.5, "0.5: a b")
			p.failing("b") // as long as it fails
			p.want(0.6, "0.5: b")
			p.ok("b")
			p.want(0.7, "0.6: b")
			p.ok("b")
			p.want(1.6)
			p.want(1.7, "1.7: b")
			p.want(10)
		}},
		{"metrics without a check", toLapwing, func(p *pipe) {
			ev := result("x")
			ev.Check, ev.Metrics = nil, &resource.Metrics{}
			p.tr.Send(ev)
			p.want(0, "0: metrics")
		}},
		{"the first keepalive of a connection", toLapwing, func(p *pipe) {
			p.tr.SendKeepalive(result("keepalive"))
			p.want(0, "0: keepalive")
			p.tr.SendKeepalive(result("keepalive"))
			p.want(0.5)
			p.want(1, "1: keepalive")
		}},
		{"a full batch does not wait", toLapwing, func(p *pipe) {
			var checks []string
			for i := range maxBatchEvents {
				checks = append(checks, fmt.Sprint(i))
			}
			p.ok(checks...)
			p.want(0, "0: "+strings.Join(checks, " "))
		}},
		{"a Sensu backend gets all as it comes", toSensu, func(p *pipe) {
			p.ok("a")
			p.want(0, "0: a")
			p.send(wire.AppendPace(nil, wire.PaceSpool, 0)) // wrong for its protocol
			p.ok("b")
			p.want(0.1, "0: b")
		}},
		{"slow", toLapwing, func(p *pipe) {
			p.failing("a")
			p.want(0, "0: a")
			p.send(wire.AppendPace(nil, wire.PaceSlow, 5*time.Second))
			p.at(0.1)
			p.failing("b")
			p.at(1)
			p.ok("c")
			p.want(4.999)
			p.want(5, "5: b c")
			p.at(8)
			p.failing("d")
			p.want(9)
			p.send(wire.AppendPace(nil, wire.PaceSlow, 2*time.Second)) // takes effect at once
			p.want(9, "9: d")
			p.failing("e")
			p.want(10)
			p.send(wire.AppendPace(nil, wire.PaceGo, 0))
			p.want(10, "10: e")
			p.failing("f")
			p.want(10.1, "10: f")
		}},
		{"spool", toLapwing, func(p *pipe) {
			p.tr.SendKeepalive(result("keepalive"))
			p.want(0, "0: keepalive")
			p.ok("a")
			p.send(wire.AppendPace(nil, wire.PaceSpool, 0))
			p.at(1)
			p.failing("b")
			for range 10 {
				p.tr.SendKeepalive(result("keepalive"))
			}
			if got := value(p.t, p.tr.metrics.buffered); got != 4 {
				p.t.Errorf("%v events held, want one keepalive more than was sent", got)
			}
			if got := value(p.t, p.tr.metrics.paced.WithLabelValues("spool")); got != 1 {
				p.t.Errorf("%v connections told to spool", got)
			}
			p.want(60)
			p.send(wire.AppendPace(nil, wire.PaceSlow, time.Minute))
			p.want(60, "60: a b", "60: keepalive") // two messages, as the numbers have a gap, but one batch
			if got := value(p.t, p.tr.metrics.paced.WithLabelValues("spool")); got != 0 {
				p.t.Errorf("%v connections told to spool", got)
			}
		}},
		{"leave", toLapwing, func(p *pipe) {
			p.ok("a") // waits for others
			p.failing("b")
			p.want(0, "0: a b")
			p.send(wire.AppendAck(nil, 1))
			p.send(wire.AppendPace(nil, wire.PaceLeave, 0))
			p.failing("c")
			p.want(1)
			p.send(wire.AppendPace(nil, wire.PaceGo, 0)) // a drain cannot be undone
			p.failing("d")
			p.want(2)
			p.send(wire.AppendAck(nil, 2))
			p.want(2, "2: closed 1001")
			if p.tr.Buffered() != 2 {
				p.t.Errorf("%d events for the next backend", p.tr.Buffered())
			}
		}},
		{"leave, when nothing was sent", toLapwing, func(p *pipe) {
			p.ok("a") // waits for others
			synctest.Wait()
			p.send(wire.AppendPace(nil, wire.PaceLeave, 0))
			p.want(0, "0: closed 1001")
		}},
		{"leave, and no acknowledgement comes", toLapwing, func(p *pipe) {
			p.failing("a")
			p.want(0, "0: a")
			p.send(wire.AppendPace(nil, wire.PaceLeave, 0))
			p.failing("b")
			p.want(4.999)
			p.want(5, "5: closed 1001")
			if p.tr.Buffered() != 2 {
				p.t.Errorf("%d events for the next backend", p.tr.Buffered())
			}
		}},
		{"leaving takes along what waits", toLapwing, func(p *pipe) {
			p.ok("a")
			synctest.Wait()
			_ = p.stop()
			p.want(0, "0: a", "0: closed 1001")
		}},
		{"but not against the backend's will", toLapwing, func(p *pipe) {
			p.send(wire.AppendPace(nil, wire.PaceSpool, 0))
			p.failing("a")
			synctest.Wait()
			_ = p.stop()
			p.want(0, "0: closed 1001")
			if p.tr.Buffered() != 1 {
				p.t.Errorf("%d events held", p.tr.Buffered())
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.run(newPipe(t, newTestTransport(t, nil), tt.about))
			})
		})
	}
}

// TestPaceEndsWithTheConnection: a new connection starts without a pace and sends at once what the old one held back.
func TestPaceEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, nil)
		p := newPipe(t, tr, toLapwing)
		tr.SendKeepalive(result("keepalive"))
		p.want(0, "0: keepalive")
		p.send(wire.AppendAck(nil, 1))
		p.send(wire.AppendPace(nil, wire.PaceSpool, 0))
		p.ok("a", "b")
		p.want(5)
		_ = p.stop()
		if got := value(t, tr.metrics.paced.WithLabelValues("spool")); got != 0 {
			t.Errorf("%v connections told to spool", got)
		}
		p = newPipe(t, tr, toLapwing)
		p.want(0, "0: a b")
		tr.SendKeepalive(result("keepalive"))
		p.want(0, "0: keepalive")
	})
}

// TestPaceFromTheFirstEventOn: a backend that cannot take events says so together with the first message.
func TestPaceFromTheFirstEventOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, func(o *TransportOptions) {
			o.OnSchedule = func(bool, []wire.ScheduleEntry) { time.Sleep(time.Second) } // the writer could have its turn
		})
		p := connect(t, tr, toLapwing)
		p.failing("a")
		if err := p.backend.WriteBatch([][]byte{unknownAgent(t), wire.AppendSchedule(nil, 1, true, nil), wire.AppendPace(nil, wire.PaceSpool, 0)}); err != nil {
			t.Fatal(err)
		}
		p.want(5)
		p.send(wire.AppendPace(nil, wire.PaceGo, 0))
		p.want(5, "5: a")
	})
}

// TestScheduleMessages: a lost message ends the connection.
func TestScheduleMessages(t *testing.T) {
	t.Parallel()
	message := func(revision uint64, replace bool) []byte {
		return wire.AppendSchedule(nil, revision, replace, []wire.ScheduleEntry{{Remove: fmt.Sprint("r", revision)}})
	}
	for _, tt := range []struct {
		name  string
		about Connection
		in    [][]byte
		heard string
		err   string
	}{
		{"replace and changes", toLapwing, [][]byte{message(1, true), message(2, false), message(3, true)}, "true r1 false r2 true r3", ""},
		{"one lost", toLapwing, [][]byte{message(1, true), message(3, false)}, "true r1", "read schedule: schedule revision 3 after 1"},
		{"one twice", toLapwing, [][]byte{message(1, true), message(1, true)}, "true r1", "read schedule: schedule revision 1 after 1"},
		{"a change of nothing", toLapwing, [][]byte{message(1, false)}, "", "read schedule: the first schedule of a session replaces nothing"},
		{"undecodable", toLapwing, [][]byte{[]byte("schedule\n\x01\x07")}, "", "read schedule: decode head of schedule: mode 7 is not known"},
		{"of a Sensu backend", toSensu, [][]byte{message(7, true)}, "", ""},
		{"a pace that is not known", toLapwing, [][]byte{[]byte("pace\n\x09\x00"), message(1, true)}, "true r1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var heard []string
				tr := newTestTransport(t, func(o *TransportOptions) {
					o.OnSchedule = func(replace bool, entries []wire.ScheduleEntry) {
						heard = append(heard, fmt.Sprint(replace, " ", entries[0].Remove))
					}
				})
				p := newPipe(t, tr, tt.about)
				for _, msg := range tt.in {
					p.send(msg)
				}
				if got := strings.Join(heard, " "); got != tt.heard {
					t.Errorf("heard of %q, want %q", got, tt.heard)
				}
				if tt.err == "" {
					p.want(1)
					return
				}
				if err := p.stop(); err == nil || err.Error() != "connection lost: "+tt.err {
					t.Errorf("ended with %v", err)
				}
				p.want(1, "0: closed 1002")
			})
		})
	}
}

// TestOverflowIsToldOnce: a buffer that fills, empties a little and fills again is logged once.
func TestOverflowIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(logged)
		tr := newTestTransport(t, func(o *TransportOptions) { o.BufferEvents, o.Logger = 10, log.logger() })
		p := newPipe(t, tr, toLapwing)
		for i := range 30 {
			p.ok(fmt.Sprint("check-", i))
			if i == 20 {
				p.at(2)
				p.send(wire.AppendAck(nil, 14)) // 11 events are sent and not yet acknowledged
			}
		}
		p.at(4)
		p.send(wire.AppendAck(nil, 30))
		if full, room := log.count("event buffer full"), log.count("event buffer has room again"); full != 1 || room != 1 {
			t.Errorf("told %d times that the buffer is full, and %d times that it is not:\n%s", full, room, log)
		}
		dropped := value(t, tr.metrics.dropped)
		if want := fmt.Sprintf("given_up=%v", dropped); dropped == 0 || log.count(want) != 1 {
			t.Errorf("dropped %v, told:\n%s", dropped, log)
		}
	})
}

// TestRefusedEvents: an event that the backend refuses for good is given up, counted, and not sent on the next
// connection.
func TestRefusedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(logged)
		tr := newTestTransport(t, func(o *TransportOptions) { o.Logger = log.logger() })
		p := newPipe(t, tr, toLapwing)
		for i := range 20 {
			p.ok(fmt.Sprint("check-", i%2))
		}
		p.at(2)
		for seq := range uint64(20) {
			if seq%2 == 0 {
				p.send(wire.AppendRefused(nil, seq+1, "check ttl is out of bounds"))
			}
		}
		p.send(wire.AppendRefused(nil, 1, "said before"))
		if n := tr.Buffered(); n != 10 {
			t.Errorf("%d events are held, want 10", n)
		}
		p.send(wire.AppendAck(nil, 20))
		if n, refused, dropped := tr.Buffered(), value(t, tr.metrics.refused), value(t, tr.metrics.dropped); n != 0 ||
			refused != 10 || dropped != 0 {
			t.Errorf("%d events are held, %v refused, %v dropped", n, refused, dropped)
		}
		if n := log.count("refused an event for good"); n != 1 { // of one check, at once; the others are left out
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

// busyLink starts a link whose writer waits with a receipt, because the backend does not read. read lets the backend do
// so, and returns how many messages have arrived when nothing more comes. stop ends the link.
func busyLink(t *testing.T, tr *Transport) (read func() int, stop func()) {
	t.Helper()
	near, far := net.Pipe()
	backend := wire.NewServerConn(far, nil, 0)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- newLink(tr, wire.NewClientConn(near, nil, 0), toLapwing).serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if err := backend.Write(unknownAgent(t)); err != nil {
		t.Fatal(err)
	}
	tr.SendReceipt(&wire.Receipt{Check: "first", Outcome: wire.OutcomeRunning})
	synctest.Wait()
	return func() (received int) {
		go func() {
			for {
				if _, err := backend.Read(); err != nil {
					return
				}
				received++
			}
		}()
		synctest.Wait()
		return received
	}, stop
}

// TestReceiptsNeverWait: a backend that does not read holds up no caller. It misses receipts.
func TestReceiptsNeverWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, nil)
		read, _ := busyLink(t, tr)
		for range maxReceipts + 100 {
			tr.SendReceipt(&wire.Receipt{Check: "disk", Outcome: wire.OutcomeRunning})
		}
		if n := read(); n != 1+maxReceipts {
			t.Errorf("received %d receipts, want %d", n, 1+maxReceipts)
		}
	})
}

// TestReceiptsLeaveBeforeTheEnd: a connection that ends on purpose carries the receipts that wait.
func TestReceiptsLeaveBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for range 30 { // the writer may notice the receipt or the end first
		synctest.Test(t, func(t *testing.T) {
			tr := newTestTransport(t, nil)
			read, stop := busyLink(t, tr)
			tr.SendReceipt(&wire.Receipt{Check: "disk", Outcome: wire.OutcomeDeclined})
			stop()
			if n := read(); n != 2 {
				t.Errorf("received %d receipts, want 2", n)
			}
		})
	}
}

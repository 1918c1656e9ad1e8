package agent

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/lapwing-monitoring/lapwing/resource"
	"github.com/lapwing-monitoring/lapwing/wire"
)

// BenchmarkTransport is the cost of an event from Send to its acknowledgement, over loopback and with a backend that
// only counts: the most that a load generator built on Transport can ask for.
//
//	go test ./agent -run '^$' -bench Transport -count=6 -benchmem
func BenchmarkTransport(b *testing.B) {
	for _, bb := range []struct {
		name  string
		stock bool
	}{{"lapwing", false}, {"sensu", true}} {
		b.Run(bb.name, func(b *testing.B) {
			backend := (&fakeBackend{stock: bb.stock}).start(b)
			done := make(chan struct{})
			tr := runTransport(b, backend, func(o *TransportOptions) {
				o.BufferEvents = b.N + 1
				o.BufferBytes = math.MaxInt
				o.Acked = func(seq uint64) {
					if seq == uint64(b.N) {
						close(done)
					}
				}
			})
			s := backend.accept(b)
			s.sendNotFound()
			go drain(s, bb.stock)
			ev := result("disk")
			ev.Check.Output = string(make([]byte, 200))
			ev.ID = resource.NewEventID()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				for tr.Buffered() > 10_000 {
					time.Sleep(time.Millisecond) // pause between polls
				}
				tr.Send(ev)
			}
			<-done
		})
	}
}

// drain acknowledges all that s receives until it is closed.
func drain(s *fakeSession, stock bool) {
	for {
		msg, err := s.Read()
		if err != nil {
			return
		}
		if stock {
			continue
		}
		_, payload, _ := wire.Split(msg)
		var last uint64
		for events := wire.ReadEvents(payload); events.Next(); {
			last = events.Seq
		}
		if s.Write(wire.AppendAck(nil, last)) != nil {
			return
		}
	}
}

// BenchmarkIdleTransport measures the memory of a connected Transport that has nothing to do: live heap and stacks. It
// includes the other end, a bare socket.
//
//	go test ./agent -run '^$' -bench IdleTransport -benchtime 1000x
func BenchmarkIdleTransport(b *testing.B) {
	backend := bareBackend(b)
	before := memory()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	ready := make(chan struct{}, b.N)
	metrics := NewMetrics(nil)
	transports := make([]*Transport, b.N)
	for i := range transports {
		tr, err := NewTransport(TransportOptions{
			Name: fmt.Sprint("agent-", i), Subscriptions: []string{"linux"}, User: "agent", Password: "secret", BackendURLs: []string{backend},
			Metrics: metrics, OnReady: func() { ready <- struct{}{} },
		})
		if err != nil {
			b.Fatal(err)
		}
		transports[i] = tr
		running.Go(func() { tr.Run(ctx) })
		<-ready
		tr.SendKeepalive(result("keepalive"))
	}
	for _, tr := range transports {
		for tr.Buffered() > 0 {
			time.Sleep(time.Millisecond) // pause between polls
		}
	}
	heap, stacks := memory().sub(before)
	b.ReportMetric(heap/float64(b.N), "heap-B/transport")
	b.ReportMetric(stacks/float64(b.N), "stack-B/transport")
	runtime.KeepAlive(transports)
	cancel()
	running.Wait()
}

type usage struct{ heap, stacks float64 }

func memory() usage {
	runtime.GC()
	runtime.GC() // what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc), float64(m.StackInuse)}
}

func (u usage) sub(o usage) (heap, stacks float64) { return u.heap - o.heap, u.stacks - o.stacks }

// bareBackend accepts agents, does not know any, acknowledges their first events, and holds only a socket per
// connection.
func bareBackend(b *testing.B) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	unknown, err := wire.Append(nil, wire.TypeEntityConfig, wire.Protobuf, &resource.EntityConfig{
		Metadata: resource.ObjectMeta{Name: notFound, Namespace: "default"}, EntityClass: "agent",
	})
	if err != nil {
		b.Fatal(err)
	}
	upgrader := ws.Upgrader{Header: ws.HandshakeHeaderHTTP(http.Header{
		wire.HeaderProtocol: {wire.ProtocolVersion}, "Accept": {wire.ContentType(wire.Protobuf)},
	})}
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
			if _, err := upgrader.Upgrade(conn); err != nil {
				b.Error(err)
				return
			}
			_ = wsutil.WriteServerBinary(conn, unknown)
			if _, err := wsutil.ReadClientBinary(conn); err != nil {
				b.Error(err)
			}
			_ = wsutil.WriteServerBinary(conn, wire.AppendAck(nil, 1))
		}
	}()
	b.Cleanup(func() {
		l.Close()
		<-done
		for _, conn := range conns {
			conn.Close()
		}
	})
	return "ws://" + l.Addr().String()
}

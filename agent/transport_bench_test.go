package agent

import (
	"testing"
	"time"

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
				o.BufferBytes = 1 << 40
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
					time.Sleep(time.Millisecond)
				}
				tr.Send(ev)
			}
			<-done
		})
	}
}

// drain acknowledges all that s receives until it is closed.
func drain(s *fakeSession, stock bool) {
	var buf []byte
	for {
		msg, err := s.Read(buf)
		if err != nil {
			return
		}
		buf = msg
		if stock {
			continue
		}
		_, payload, _ := wire.Split(msg)
		var last uint64
		_ = wire.DecodeEvents(payload, func(seq uint64, _ wire.Item) error {
			last = seq
			return nil
		})
		if s.Write(wire.AppendAck(nil, last)) != nil {
			return
		}
	}
}

package carbon

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/lapwing-monitoring/lapwing/internal/testcert"
	"github.com/lapwing-monitoring/lapwing/internal/tlsfiles"
)

// counter is a Writer that counts, and notifies when it has so many points.
type counter struct {
	points, want int
	done         chan struct{}
}

func (c *counter) Add([]byte, int64, float64) error {
	c.points++
	if c.points == c.want {
		close(c.done)
	}
	return nil
}

func (c *counter) Flush() error { return nil }
func (c *counter) Close() error { return nil }

// BenchmarkListener answers how much of a core a point needs from one socket to another, with the sender.
//
//	go test -run xxx -bench Listener ./metric/carbon
func BenchmarkListener(b *testing.B) {
	var points []point
	for i := range 500 {
		points = append(points, point{fmt.Sprintf("servers.host%03d.cpu.total.idle", i), now, float64(i) * 1.37})
	}
	ca := testcert.New(b, "ours")
	config := serverTLS(b, withPair(tlsfiles.Options{}, ca.Issue(b, []string{"127.0.0.1"}, nil)))
	for _, bc := range []struct {
		name string
		opts Options
		data []byte
	}{
		{"line", Options{Protocol: LineTCP}, asLines(points)},
		{"tls", Options{Protocol: LineTCP, TLS: config}, asLines(points)},
		{"pickle", Options{Protocol: Pickle}, asPickle(points...)},
		{"protobuf", Options{Protocol: Protobuf}, asProtobuf(points...)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			w := &counter{want: b.N * len(points), done: make(chan struct{})}
			o := bc.opts
			o.Address, o.Now, o.NewWriter = "127.0.0.1:0", testNow, func() Writer { return w }
			l, err := New(o)
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			if o.TLS != nil {
				c = tls.Client(c, clientTLS(b, ca, testcert.Pair{}))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := c.Write(bc.data); err != nil {
					b.Fatal(err)
				}
			}
			select {
			case <-w.done:
			case <-time.After(patience):
				b.Fatal("points are missing")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(points)), "ns/point")
			_ = c.Close()
			if err := l.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

//go:build unix

package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// The Loopback benchmarks measure the cost of a frame when one, two or eight are sent together. Each operation is one
// write of that many; the peer is a bare socket that does as little as possible.
//
//	go test ./wire -run '^$' -bench Loopback -count=6 -benchmem

func eachLoad(b *testing.B, f func(b *testing.B, size, frames int)) {
	for _, size := range []int{400, 1300} {
		for _, frames := range []int{1, 2, 8} {
			b.Run(fmt.Sprintf("bytes=%d/frames=%d", size, frames), func(b *testing.B) {
				f(b, size, frames)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*frames), "ns/frame")
			})
		}
	}
}

// BenchmarkLoopbackRead reads frames that have arrived already.
func BenchmarkLoopbackRead(b *testing.B) {
	eachLoad(b, func(b *testing.B, size, frames int) {
		s, client := tcpPair(b)
		server := NewServerConn(s, nil, testLimit)
		input := maskedFrames(frames, size)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.Write(input); err != nil {
				b.Fatal(err)
			}
			for range frames {
				if _, err := server.Read(); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkLoopbackSessions wakes a few hundred waiting readers, like a backend's agents.
func BenchmarkLoopbackSessions(b *testing.B) {
	const conns = 200
	eachLoad(b, func(b *testing.B, size, frames int) {
		var unread atomic.Int64
		done := make(chan struct{})
		clients := make([]net.Conn, conns)
		var wg sync.WaitGroup
		for i := range clients {
			var s net.Conn
			s, clients[i] = tcpPair(b)
			server := NewServerConn(s, nil, testLimit)
			wg.Go(func() {
				for {
					if _, err := server.Read(); err != nil {
						return
					}
					if unread.Add(-1) == 0 {
						done <- struct{}{}
					}
				}
			})
		}
		writeToAll(b, clients, size, frames, &unread, done)
		for _, c := range clients {
			c.Close()
		}
		wg.Wait()
	})
}

// writeToAll writes to sessions in turn, and waits for each round: the reader that takes unread to 0 sends to done.
func writeToAll(b *testing.B, clients []net.Conn, size, frames int, unread *atomic.Int64, done <-chan struct{}) {
	input := maskedFrames(frames, size)
	cpu := processTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= len(clients) {
		n := min(left, len(clients))
		unread.Store(int64(n * frames))
		for _, c := range clients[:n] {
			if _, err := c.Write(input); err != nil {
				b.Fatal(err)
			}
		}
		<-done
	}
	b.StopTimer()
	b.ReportMetric(float64(processTime(b)-cpu)/float64(b.N*frames), "cpu-ns/frame")
}

// BenchmarkLoopbackWrite writes frames to a bare socket.
func BenchmarkLoopbackWrite(b *testing.B) {
	for _, how := range []struct {
		name  string
		write func(*Conn, [][]byte) error
	}{
		{"batch", (*Conn).WriteBatch},
		{"try", func(c *Conn, msgs [][]byte) error {
			rest, err := c.TryWriteBatch(msgs)
			if rest != nil {
				err = c.FinishWrite(rest)
			}
			return err
		}},
	} {
		b.Run(how.name, func(b *testing.B) {
			eachLoad(b, func(b *testing.B, size, frames int) {
				s, client := tcpPair(b)
				server := NewServerConn(s, nil, testLimit)
				msgs := make([][]byte, frames)
				for i := range msgs {
					msgs[i] = make([]byte, size)
				}
				in := make([]byte, frames*(size+ws.HeaderSize(ws.Header{Length: int64(size)})))
				b.ReportAllocs()
				for b.Loop() {
					if err := how.write(server, msgs); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(client, in); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// processTime returns the CPU time of the process, in user and kernel mode.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkConnRead(b *testing.B) {
	for _, size := range []int{100, 400, 1400, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			frame := rawFrames(ws.NewBinaryFrame(make([]byte, size)))
			stream := bytes.NewReader(frame)
			server := NewServerConn(&streamConn{r: stream}, nil, 0)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				stream.Reset(frame)
				if _, err := server.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkConnWrite(b *testing.B) {
	msg := make([]byte, 400)
	for name, newConn := range map[string]func(net.Conn, *bufio.Reader, int64) *Conn{"server": NewServerConn, "client": NewClientConn} {
		b.Run(name, func(b *testing.B) {
			c := newConn(&streamConn{}, nil, 0)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Write(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

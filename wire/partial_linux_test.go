package wire

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// TestPartials: a connection that holds part of a message is closed when it takes too long, or when all hold too much and it
// has been at it the longest. What became complete does not count.
func TestPartials(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"socket": tcpPair, "stream": pipePair} {
		t.Run(name, func(t *testing.T) {
			const limit = 1 << 20
			var cut []*Conn
			p := NewPartials(limit, time.Hour, func(c *Conn, arrived int64, _ time.Duration) {
				if arrived <= 0 {
					t.Errorf("it had %d bytes", arrived)
				}
				cut = append(cut, c)
			})
			read := make(chan *Conn, 10)
			connect := func(frame []byte) (*Conn, net.Conn, chan error) {
				server, client := pair(t)
				c := NewServerConn(server, nil, 4<<20)
				c.Watch(p)
				ended := make(chan error, 1)
				go func() {
					for {
						if _, err := c.Read(); err != nil {
							ended <- err
							return
						}
						read <- c
					}
				}()
				t.Cleanup(func() {
					c.Close(CloseGoingAway, "")
					client.Close()
				})
				if _, err := client.Write(frame); err != nil {
					t.Fatal(err)
				}
				return c, client, ended
			}
			whole := maskedFrames(1, 600<<10)
			_, _, first := connect(whole)
			<-read
			slow, _, second := connect(whole[:len(whole)-1])
			waitHeld(t, p, 600<<10)
			select {
			case err := <-first:
				t.Fatalf("the first connection ended: %v", err)
			case err := <-second:
				t.Fatalf("the second connection ended: %v", err)
			default:
			}
			third, client, ended := connect(whole[:len(whole)-1])
			if err := <-second; err == nil {
				t.Error("the slowest was not closed")
			}
			waitHeld(t, p, 600<<10)
			if held := p.Bytes(); held > limit || len(cut) != 1 || cut[0] != slow {
				t.Errorf("%d bytes are held, %d were closed", held, len(cut))
			}
			if _, err := client.Write(whole[len(whole)-1:]); err != nil {
				t.Fatal(err)
			}
			if c := <-read; c != third {
				t.Error("another connection had the message")
			}
			waitHeld(t, p, 0)
			p.longest = 0
			p.Sweep()
			select {
			case err := <-ended:
				t.Fatalf("a message that is complete was too slow: %v", err)
			default:
			}
			if _, err := client.Write(whole[:2]); err != nil { // part of a header
				t.Fatal(err)
			}
			eventually(t, "the other is closed", func() bool {
				p.Sweep()
				return len(cut) == 2
			})
			if err := <-ended; cut[1] != third || !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the end of the other: %v", err)
			}
			if !third.Heard() || third.Heard() {
				t.Error("it was not heard once")
			}
		})
	}
}

func pipePair(testing.TB) (server, client net.Conn) { return net.Pipe() }

// waitHeld waits until at least so many bytes are held; exactly none for 0.
func waitHeld(t *testing.T, p *Partials, bytes int64) {
	t.Helper()
	eventually(t, "bytes are held", func() bool {
		held := p.Bytes()
		return bytes == 0 && held == 0 || bytes > 0 && held >= bytes
	})
}

// TestPartialsWithControlFrames: a message that has begun counts while a control frame in its midst arrives.
func TestPartialsWithControlFrames(t *testing.T) {
	p := NewPartials(4<<20, time.Hour, func(*Conn, int64, time.Duration) {})
	server, client := tcpPair(t)
	c := NewServerConn(server, nil, 4<<20)
	c.Watch(p)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Read()
	}()
	const size = 900 << 10
	first := ws.MaskFrame(ws.NewFrame(ws.OpBinary, false, make([]byte, size)))
	ping := rawFrames(ws.MaskFrame(ws.NewPingFrame(make([]byte, 100))))
	if _, err := client.Write(append(rawFrames(first), ping[:7]...)); err != nil { // its header, and a byte
		t.Fatal(err)
	}
	waitHeld(t, p, 1)
	for deadline := time.Now().Add(10 * time.Second); p.Bytes() < size+100; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are counted", p.Bytes())
		}
	}
	c.Close(CloseGoingAway, "")
	client.Close()
	<-ended
}

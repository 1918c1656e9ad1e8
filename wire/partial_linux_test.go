package wire

import (
	"net"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// counted is a connection whose messages a Partials bounds. Its reader keeps each message until the test lets it go on.
type counted struct {
	*Conn
	client net.Conn
	read   chan int      // lengths of messages
	next   chan struct{} // lets the reader go on
	ended  chan error
}

func count(t *testing.T, p *Partials, pair func(testing.TB) (net.Conn, net.Conn)) *counted {
	server, client := pair(t)
	c := &counted{NewServerConn(server, nil, 4<<20), client, make(chan int, 1), make(chan struct{}), make(chan error, 1)}
	c.Watch(p)
	stop := make(chan struct{})
	go func() {
		for {
			msg, err := c.Read()
			if err != nil {
				c.Done()
				c.ended <- err
				return
			}
			select {
			case c.read <- len(msg):
				<-c.next
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		c.Close(CloseGoingAway, "")
		client.Close()
	})
	return c
}

// send writes without waiting for the reader.
func (c *counted) send(b []byte) { go func() { _, _ = c.client.Write(b) }() }

// got lets the reader go on after a message of the given length.
func (c *counted) got(t *testing.T, length int) {
	t.Helper()
	select {
	case n := <-c.read:
		if n != length {
			t.Errorf("got a message of %d bytes, want %d", n, length)
		}
	case err := <-c.ended:
		t.Fatalf("the connection ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("no message within a minute")
	}
}

// TestPartials: messages count until they are complete and their readers are done with them. At the limit connections
// stop reading long ones and none is closed; short ones are read. One connection may exceed the limit, so that messages
// become complete.
func TestPartials(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"socket": tcpPair, "stream": pipePair} {
		t.Run(name, func(t *testing.T) {
			const limit, size = 1 << 20, 600 << 10
			p := NewPartials(limit, time.Hour, func(*Conn, int64, time.Duration) { t.Error("a connection was closed") })
			whole, short, longer := maskedFrames(1, size), maskedFrames(1, 100), maskedFrames(1, 20<<10)
			slow, second, third, other := count(t, p, pair), count(t, p, pair), count(t, p, pair), count(t, p, pair)
			result := count(t, p, pair)
			use := func(what string, ok func(u PartialsUse) bool) {
				t.Helper()
				eventually(t, what, func() bool { return ok(p.Use()) })
			}
			slow.send(whole[:len(whole)-1])
			use("most of a message has arrived", func(u PartialsUse) bool { return u.Arriving >= size*3/4 })
			second.send(whole) // exceeds the limit, since it would otherwise wait for the slow one
			second.got(t, size)
			if u := p.Use(); u.Kept < size || u.Arriving > size*5/4 {
				t.Errorf("with one message complete and one arriving: %+v", u)
			}
			third.send(whole)
			use("the third stops", func(u PartialsUse) bool { return u.Stopped == 1 })
			other.send(short)
			other.got(t, 100)
			close(other.next)
			result.send(longer) // than a read buffer
			result.got(t, 20<<10)
			close(result.next)
			if u := p.Use(); u.Stopped != 1 || u.Arriving+u.Kept > limit+size {
				t.Errorf("while the third waits: %+v", u)
			}
			close(second.next) // the message was dealt with
			third.got(t, size)
			p.Sweep()
			close(third.next)
			slow.send(whole[len(whole)-1:])
			slow.got(t, size)
			close(slow.next)
			use("nothing is held", func(u PartialsUse) bool { return u == PartialsUse{} })
		})
	}
}

// TestSlowMessagesGo: a message that takes too long ends its connection. One that keeps others waiting does so sooner,
// one that waits itself does not. A connection that is closed while it waits notices that.
func TestSlowMessagesGo(t *testing.T) {
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"socket": tcpPair, "stream": pipePair} {
		t.Run(name, func(t *testing.T) {
			const limit, size = 1 << 20, 600 << 10
			var cut []*Conn
			p := NewPartials(limit, time.Hour, func(c *Conn, arrived int64, _ time.Duration) {
				if arrived < size*3/4 {
					t.Errorf("it had %d bytes", arrived)
				}
				cut = append(cut, c)
			})
			age := func(c *counted, by time.Duration) {
				p.mu.Lock()
				defer p.mu.Unlock()
				c.partial.began = c.partial.began.Add(-by)
			}
			// A sweep that finds unread data in a socket restarts the message's time, so the message ages before each.
			closed := func(c *counted, by time.Duration) func() bool {
				return func() bool {
					if len(c.ended) == 0 {
						age(c, by)
						p.Sweep()
					}
					return len(c.ended) == 1
				}
			}
			whole := maskedFrames(1, size)
			first, second := count(t, p, pair), count(t, p, pair)
			first.send(whole[:len(whole)-1])
			eventually(t, "the first holds much", func() bool { return p.Use().Arriving >= size*3/4 })
			second.send(whole[:len(whole)-1])
			// It is the one that may: otherwise the third or the fourth could be, and would not stop.
			eventually(t, "the second exceeds the limit", func() bool { return p.Use().Arriving > limit })
			age(first, 30*time.Minute)
			if p.Sweep(); len(cut) > 0 {
				t.Fatal("a connection was closed before its time")
			}
			third, fourth := count(t, p, pair), count(t, p, pair)
			third.send(whole)
			fourth.send(whole)
			eventually(t, "two stop", func() bool { return p.Use().Stopped == 2 })
			fourth.Close(CloseGoingAway, "")
			if err := <-fourth.ended; err == nil {
				t.Error("a connection that was closed reads on")
			}
			age(third, 2*time.Hour)
			eventually(t, "the first is closed", func() bool { p.Sweep(); return len(first.ended) == 1 })
			if err := <-first.ended; err == nil || len(cut) != 1 || cut[0] != first.Conn {
				t.Errorf("%d connections were closed for keeping others waiting: %v", len(cut), err)
			}
			// The third gets through, at the latest when the second is closed too: that depends on how much of the
			// second has arrived.
			age(second, 30*time.Minute)
			eventually(t, "the third gets through", func() bool {
				p.Sweep()
				return len(third.read) == 1 || len(third.ended) == 1
			})
			third.got(t, size)
			close(third.next)
			eventually(t, "the second is closed", closed(second, time.Hour))
			eventually(t, "nothing is held", func() bool { return p.Use() == PartialsUse{} })
			fifth := count(t, p, pair)
			fifth.send(whole[:len(whole)-1])
			eventually(t, "most of a message has arrived", func() bool { return p.Use().Arriving >= size*3/4 })
			eventually(t, "the fifth is closed", closed(fifth, time.Hour))
			if err := <-fifth.ended; err == nil || len(cut) != 3 || cut[1] != second.Conn || cut[2] != fifth.Conn {
				t.Errorf("%d connections were closed: %v", len(cut), err)
			}
			eventually(t, "nothing is held", func() bool { return p.Use() == PartialsUse{} })
		})
	}
}

// TestKeep counts a short message that waits, until the next is read.
func TestKeep(t *testing.T) {
	p := NewPartials(1<<20, time.Hour, nil)
	server, client := tcpPair(t)
	c := NewServerConn(server, nil, testLimit)
	c.Watch(p)
	if _, err := client.Write(maskedFrames(2, 100)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		msg, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if u := p.Use(); u.Kept != 0 {
			t.Errorf("before it has to wait: %+v", u)
		}
		c.Keep(len(msg))
		c.Keep(len(msg))
		if u := p.Use(); u.Kept != 100 || u.Arriving != 0 {
			t.Errorf("while it waits: %+v", u)
		}
	}
	c.Done()
	if u := p.Use(); u != (PartialsUse{}) {
		t.Errorf("in the end: %+v", u)
	}
}

func pipePair(testing.TB) (server, client net.Conn) { return net.Pipe() }

// TestPartialsWithControlFrames: an incomplete message counts while a control frame within it arrives.
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
	eventually(t, "the message and the control frame count", func() bool { return p.Use().Arriving >= size })
	c.Close(CloseGoingAway, "")
	client.Close()
	<-ended
}

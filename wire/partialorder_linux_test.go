package wire

import (
	"testing"
	"time"
)

// crowd is a Partials filled with short messages that are complete and wait.
type crowd struct {
	*Partials
	t    *testing.T
	kept []*Conn
}

const (
	crowdLimit = 1 << 20
	shortSize  = 32 << 10
)

func newCrowd(t *testing.T, messages int) *crowd {
	c := &crowd{NewPartials(crowdLimit, time.Hour, func(*Conn, int64, time.Duration) {}), t, nil}
	for range messages {
		one := c.conn()
		if !c.hold(one, shortSize, false) {
			t.Fatal("no room for a short message")
		}
		c.complete(one)
		c.kept = append(c.kept, one)
	}
	return c
}

func (c *crowd) conn() *Conn {
	server, client := pipePair(c.t)
	c.t.Cleanup(func() { client.Close() })
	one := NewServerConn(server, nil, 4<<20)
	one.Watch(c.Partials)
	return one
}

// wait makes a connection wait with a message. granted is closed when it may go on, at the latest at the end of the
// test.
func (c *crowd) wait(bytes int64) (granted chan struct{}) {
	c.t.Helper()
	granted = make(chan struct{})
	one, stopped := c.conn(), c.Use().Stopped
	go func() {
		c.hold(one, bytes, true)
		close(granted)
	}()
	c.t.Cleanup(func() {
		c.closed(one)
		<-granted
	})
	eventually(c.t, "the connection stops", func() bool { return c.Use().Stopped > stopped })
	return granted
}

// next finishes the oldest message, sends another short one, and reports whether that was read.
func (c *crowd) next() bool {
	c.done(c.kept[0])
	one := c.conn()
	c.kept = c.kept[1:]
	if !c.hold(one, shortSize, false) {
		return false
	}
	c.complete(one)
	c.kept = append(c.kept, one)
	return true
}

// TestShortMessagesDoNotStarveALongOne: short messages overtake a waiting long one until their bytes reach the limit.
// Then they wait, too, until it has continued.
func TestShortMessagesDoNotStarveALongOne(t *testing.T) {
	c := newCrowd(t, 36) // between the limit and a quarter more
	long := c.wait(256 << 10)
	passed := 0
	for ; c.next(); passed++ {
		if passed > 2*crowdLimit/shortSize {
			t.Fatalf("%d short messages went past a long one: %+v", passed, c.Use())
		}
	}
	if passed < crowdLimit/shortSize {
		t.Errorf("only %d short messages went past a long one", passed)
	}
	short := c.wait(shortSize)
	for range 12 {
		c.done(c.kept[0])
		c.kept = c.kept[1:]
	}
	<-long
	<-short
}

// TestShortMessagesWaitInTheirOrder: a waiting short message is not overtaken by another, though that is shorter and
// there is room for it.
func TestShortMessagesWaitInTheirOrder(t *testing.T) {
	c := newCrowd(t, 40) // a quarter more than the limit
	c.wait(256 << 10)
	short := c.wait(shortSize * 3 / 2)
	if c.next() {
		t.Error("a short message went past one that waits")
	}
	c.done(c.kept[0])
	<-short
	if n := c.Use().Stopped; n != 1 {
		t.Errorf("%d connections wait, want the one with the long message", n)
	}
}

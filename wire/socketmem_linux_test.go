package wire

import (
	"fmt"
	"testing"
	"time"
)

func TestSocketsFull(t *testing.T) {
	const limits = "287901\t383868\t575802\n"
	f := func(use string, limits string, want bool) {
		t.Helper()
		if got := socketsFull([]byte(use), limits); got != want {
			t.Errorf("with %q of %q: %v", use, limits, got)
		}
	}
	stat := func(pages int) string {
		return fmt.Sprintf("sockets: used 35578\nTCP: inuse 35560 orphan 6719 tw 723 alloc 35567 mem %d\nUDP: inuse 0 mem 999999\n", pages)
	}
	f(stat(383868), limits, false)
	f(stat(383869), limits, true)
	f("", limits, false)
	f("TCP: inuse 1 mem\n", limits, false)
	f(stat(999999), "", false)
	f(stat(999999), "1 x 3", false)
	SocketsFull() // whatever this system says
}

// TestRelieve: the newer half of the connections that wait for room are closed, and the others get through.
func TestRelieve(t *testing.T) {
	const limit, size = 1 << 20, 600 << 10
	p := NewPartials(limit, time.Hour, func(*Conn, int64, time.Duration) { t.Error("a connection was closed as slow") })
	whole := maskedFrames(1, size)
	slow, beyond := count(t, p, tcpPair), count(t, p, tcpPair)
	slow.send(whole[:len(whole)-1])
	eventually(t, "the first holds much", func() bool { return p.Use().Arriving >= size*3/4 })
	beyond.send(whole[:len(whole)-1])
	eventually(t, "the second holds as much", func() bool { return p.Use().Arriving >= 2*size*3/4 })
	var waiting []*counted
	for i := range 5 {
		c := count(t, p, tcpPair)
		c.send(whole)
		waiting = append(waiting, c)
		eventually(t, "one more waits", func() bool { return p.Use().Stopped == i+1 })
	}
	if n := p.Relieve(); n != 3 {
		t.Errorf("%d connections were closed, want 3 of 5", n)
	}
	for i, c := range waiting[2:] {
		if err := <-c.ended; err == nil {
			t.Errorf("connection %d reads on", i+2)
		}
	}
	for _, c := range []*counted{slow, beyond} {
		c.send(whole[len(whole)-1:])
		c.got(t, size)
		close(c.next)
	}
	for _, c := range waiting[:2] {
		c.got(t, size)
		close(c.next)
	}
	eventually(t, "nothing is held", func() bool { return p.Use() == PartialsUse{} })
	if n := p.Relieve(); n != 0 {
		t.Errorf("%d connections were closed while none waits", n)
	}
}
